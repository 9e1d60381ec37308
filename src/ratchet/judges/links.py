"""Links that a candidate has laid, which would lead whoever follows them to files of others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

# More than any honest program leaves, few enough to be looked at.
MAX_ENTRIES = 200_000


class Trap(ValueError):
    """Something in a candidate's files is not what it seems to be."""


def check_plain(directory: Path) -> None:
    """Raise `Trap` unless there are only files and directories below `directory`: no links, no pipes, no devices."""
    for entry in _entries(directory):
        kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise Trap(f"{os.path.relpath(entry.path, directory)} is neither a file nor a directory")


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    waiting, count = [os.fspath(directory)], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                entries = list(found)
        except OSError as error:
            raise Trap(f"{error.filename} cannot be listed: {error.strerror}") from None
        count += len(entries)
        if count > MAX_ENTRIES:
            raise Trap(f"it has more than {MAX_ENTRIES} files")
        yield from entries
        waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
