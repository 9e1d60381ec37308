"""The first `ratchet.toml`: every key with its default, commented out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ratchet.config.load import FILE_NAME
from ratchet.config.schema import ANY, Leaf, Table, default_of, entries
from ratchet.config.sources import Key, dotted
from ratchet.kernel import ConfigError

_HEAD = """\
# Settings of Ratchet. Remove the # before a key to change it. Tables such as [server] may follow behind all of these.
# RATCHET_* variables (RATCHET_SERVER__PORT for server.port) are stronger than this file, flags stronger.
# `ratchet config show` tells where each value comes from.

"""


def write_initial(home: Path) -> Path:
    """Create `ratchet.toml` in `home`, whole or not at all. A file that is already there stays as it is.

    Git is told to leave the home alone: it may lie in a repository, and has secrets in it.
    """
    path = home / FILE_NAME
    try:
        home.mkdir(parents=True, exist_ok=True)
        hide_from_git(home)
        if not path.exists():
            _create(path, initial_text(home))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="mend its permissions"
        ) from error
    return path


def hide_from_git(home: Path) -> None:
    if not (home / ".gitignore").exists():
        _create(home / ".gitignore", "*\n")


def initial_text(home: Path) -> str:
    """What the first file says. Keys without a default show an example."""
    return _HEAD + "\n".join(_lines(home)) + "\n"


def _lines(home: Path) -> Iterator[str]:
    chosen: dict[Key, str] = {}
    for entry in entries():
        text = entry.field.description or ""
        if entry.key[-1] == ANY:
            chosen |= _examples(entry)
        if isinstance(entry, Table):
            # No header: a table that is begun here could not be begun again by what is pasted in below.
            yield from ("", f"# {dotted(_named(entry.key, chosen))}: {text}")
            continue
        yield f"# {text}{'' if entry.key[-1] == ANY else _unset(entry, home)}"
        yield f"#{dotted(_named(entry.key, chosen))} = {json.dumps(_shown(entry, home))}"


def _examples(entry: Leaf | Table) -> dict[Key, str]:
    """A name for each place in the key where a person chooses one."""
    extra = entry.field.json_schema_extra
    words = str(extra["example"]).split(".") if isinstance(extra, dict) else []
    places = [index for index, part in enumerate(entry.key) if part == ANY][-len(words) :]
    return {entry.key[: place + 1]: word for place, word in zip(places, words, strict=True)}


def _named(key: Key, chosen: dict[Key, str]) -> Key:
    return tuple(chosen.get(key[: index + 1], part) for index, part in enumerate(key))


def _unset(leaf: Leaf, home: Path) -> str:
    return " (not set by default)" if default_of(leaf, home) is None else ""


def _shown(leaf: Leaf, home: Path) -> Any:
    value = default_of(leaf, home)
    unset = value is None or leaf.key[-1] == ANY
    return leaf.field.examples[0] if unset and leaf.field.examples else value


def _create(path: Path, text: str) -> None:
    # The temporary file is private, and so stays the real one: a token may be written into it.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    """Give the file its name, unless somebody else was first."""
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        # A file system without hard links: somebody may come between the check in `write_initial` and here.
        temporary.replace(path)
