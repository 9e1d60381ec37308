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
from ratchet.config.schema import ANY, Leaf, Table, dotted, entries
from ratchet.kernel import ConfigError

_EXAMPLE_QUEUE = "gpu"
_HEAD = """\
# Settings of Ratchet. Remove the # before a key to change it.
# RATCHET_* variables (RATCHET_SERVER__PORT for server.port) are stronger than this file, flags stronger.
# `ratchet config show` tells where each value comes from.

"""


def write_initial(home: Path) -> Path:
    """Create `ratchet.toml` in `home`, whole or not at all. A file that is already there stays as it is."""
    path = home / FILE_NAME
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create(path, initial_text(home))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="mend its permissions"
        ) from error
    return path


def initial_text(home: Path) -> str:
    """What the first file says. Keys without a default show an example."""
    return _HEAD + "\n".join(_lines(home)) + "\n"


def _lines(home: Path) -> Iterator[str]:
    for entry in entries():
        text = entry.field.description or ""
        if isinstance(entry, Table):
            name = dotted(tuple(_EXAMPLE_QUEUE if part == ANY else part for part in entry.key))
            yield from ("", f"# {text}", f"#[{name}]" if ANY in entry.key else f"[{name}]")
        else:
            value = _default(entry, home)
            unset = " (not set by default)" if value is None else ""
            shown = entry.field.examples[0] if value is None and entry.field.examples else value
            yield from (f"# {text}{unset}", f"#{entry.key[-1]} = {json.dumps(shown)}")


def _default(leaf: Leaf, home: Path) -> Any:
    if leaf.key == ("database_url",):
        return f"sqlite:///{home.absolute()}/ledger.db"
    return leaf.field.get_default(call_default_factory=True, validated_data={})


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
