"""The first `ratchet.toml`: every key with its default, commented out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ratchet.config.load import FILE_NAME, close_to_others
from ratchet.config.schema import ANY, KeyLeaf, KeyTable, default_of, entries
from ratchet.config.sources import Key, dotted, flatten
from ratchet.kernel import ConfigError

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_settings(home: Path, values: Mapping[Key, Any]) -> Path:
    """Set keys that the file of `home` does not set yet; the others keep their values. Makes the file if need be.

    The file is replaced as a whole or not at all. Raises `ConfigError` if it cannot be written, or has a form in which
    the keys cannot be added; the hint is what to write by hand.
    """
    path = write_initial(home)
    text = path.read_text(encoding="utf-8")
    known = dict(flatten(tomllib.loads(text)))
    missing = {key: value for key, value in values.items() if key not in known}
    added = _added(text, missing)
    if added is None or dict(flatten(tomllib.loads(added))) != {**known, **missing}:
        lines = "\n".join(f"{_dotted(key)} = {json.dumps(value)}" for key, value in missing.items())
        raise ConfigError(
            f"{path} has a form in which nothing can be added by itself", hint=f"write:\n{lines}"
        )
    if added != text:
        _replace(path, added)
    return path


def _added(text: str, values: Mapping[Key, Any]) -> str | None:
    lines = text.splitlines()
    for key, value in values.items():
        lines = _with_line(lines, key, json.dumps(value))
    added = "\n".join(lines) + "\n"
    try:
        tomllib.loads(added)
    except tomllib.TOMLDecodeError:
        return None
    return added


def _with_line(lines: list[str], key: Key, value: str) -> list[str]:
    """The line goes below the deepest table that is begun for it, else to the keys that stand before all tables."""
    headers = {index: _parts(found[1]) for index, line in enumerate(lines) if (found := _HEADER.match(line))}
    own = [index for index, table in headers.items() if table == key[: len(table)] and len(table) < len(key)]
    if own:
        index = max(own, key=lambda each: len(headers[each]))
        return [
            *lines[: index + 1],
            f"{_dotted(key[len(headers[index]) :])} = {value}",
            *lines[index + 1 :],
        ]
    written = f"{_dotted(key)} = {value}"
    commented = f"#{_dotted(key)} ="
    first = min(headers, default=len(lines))
    for index, line in enumerate(lines[:first]):
        if line.startswith(commented):
            return [*lines[:index], written, *lines[index + 1 :]]
    return [*lines[:first], written, *lines[first:]]


def _dotted(key: Key) -> str:
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part) for part in key)


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _replace(path: Path, text: str) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(path.stat().st_mode & 0o777)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="change its permissions"
        ) from error


_HEAD = """\
# Settings of Ratchet. Remove the # before a key to change it. Tables such as [server] may follow behind all of these.
# RATCHET_* variables (RATCHET_SERVER__PORT for server.port) are stronger than this file, flags stronger.
# `ratchet config show` says where each value comes from.

"""


def write_initial(home: Path) -> Path:
    """Create `ratchet.toml` in `home`, whole or not at all. A file that is already there stays as it is.

    Git is told to leave the home alone: it may lie in a repository, and has secrets in it.
    """
    path = home / FILE_NAME
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        close_to_others(home)
        hide_from_git(home)
        if not path.exists():
            _create(path, initial_text(home))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="fix its permissions"
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
        if isinstance(entry, KeyTable):
            # No header: a table that is begun here could not be begun again by what is pasted in below.
            yield from ("", f"# {dotted(_named(entry.key, chosen))}: {text}")
            continue
        yield f"# {text}{'' if entry.key[-1] == ANY else _unset(entry, home)}"
        yield f"#{dotted(_named(entry.key, chosen))} = {json.dumps(_shown(entry, home))}"


def _examples(entry: KeyLeaf | KeyTable) -> dict[Key, str]:
    """A name for each place in the key where a person chooses one."""
    extra = entry.field.json_schema_extra
    words = str(extra["example"]).split(".") if isinstance(extra, dict) else []
    places = [index for index, part in enumerate(entry.key) if part == ANY][-len(words) :]
    return {entry.key[: place + 1]: word for place, word in zip(places, words, strict=True)}


def _named(key: Key, chosen: dict[Key, str]) -> Key:
    return tuple(chosen.get(key[: index + 1], part) for index, part in enumerate(key))


def _unset(leaf: KeyLeaf, home: Path) -> str:
    return " (not set by default)" if default_of(leaf, home) is None else ""


def _shown(leaf: KeyLeaf, home: Path) -> Any:
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
