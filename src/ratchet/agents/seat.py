"""One host per home: who has the right to be it, and where it answers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ratchet.agents.place import agents_directory


@contextlib.contextmanager
def seat(home: Path) -> Iterator[bool]:
    """Whether this process is the host of `home`, until the block ends. A process that dies gives the right back."""
    with _lock_file(home) as descriptor:
        if not _lock(descriptor, fcntl.LOCK_EX):
            yield False
            return
        # A host that died left its own. While the right is held, it is never somebody else's that is removed.
        _announcement(home).unlink(missing_ok=True)
        try:
            yield True
        finally:
            _announcement(home).unlink(missing_ok=True)


def announce(home: Path, url: str) -> None:
    """Tell other processes where the host of `home` answers. Only who has the seat may."""
    path = _announcement(home)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    new.replace(path)


def announced(home: Path) -> str | None:
    """Where the host of `home` says that it answers; `None` when there is no host or it does not say yet."""
    try:
        url = str(json.loads(_announcement(home).read_text())["url"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    with _lock_file(home) as descriptor:
        left_behind = _lock(descriptor, fcntl.LOCK_SH)
    return None if left_behind else url


@contextlib.contextmanager
def _lock_file(home: Path) -> Iterator[int]:
    directory = agents_directory(home)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _announcement(home: Path) -> Path:
    return agents_directory(home) / "host.json"
