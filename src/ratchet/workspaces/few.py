"""Telling a directory that is dealt with in no time from one that may take long."""

from __future__ import annotations

import os
from pathlib import Path

FEW_FILES = 32
_FEW_BYTES = 256 * 1024


def holds_little(directory: Path) -> bool:
    """Whether there are a few small files and nothing else. It looks no further than it takes to say no.

    What git has rules for (.gitignore and the like) is not little: it has to be asked.
    """
    count = size = 0
    folders = [os.fspath(directory)]
    try:
        while folders:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    count += 1
                    if count > FEW_FILES or entry.name.startswith(".git"):
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    if not entry.is_file(follow_symlinks=False):
                        return False
                    size += entry.stat(follow_symlinks=False).st_size
                    if size > _FEW_BYTES:
                        return False
    except OSError:
        return False
    return True
