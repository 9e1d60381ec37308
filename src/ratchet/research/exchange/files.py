"""Finding and opening the files of a state directory that somebody else wrote.

Links are not followed and only regular files are read, so that a directory from elsewhere shows nothing but itself.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ratchet.kernel import Misuse

RESULTS = "results.tsv"
TREE = "tree.tsv"
BEST = "best.json"
LEADERBOARD = "LEADERBOARD.md"
KNOWLEDGE = "KNOWLEDGE.md"
CALIBRATION = "calibration.log"
SNAPSHOTS = "snapshots"

_BLACKBOARD = "blackboard"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def find_blackboard(directory: Path) -> Path:
    """The directory with results.tsv in it: the one given, or the blackboard below a state root."""
    for place in (directory, directory / _BLACKBOARD):
        if place.is_dir() and os.path.lexists(place / RESULTS):
            if place != directory and place.is_symlink():
                raise Misuse(f"{place} is a symbolic link", hint="name the directory that it leads to")
            return place
    if not directory.exists():
        raise Misuse(f"{directory} does not exist", hint="name a state directory")
    raise Misuse(
        f"there is no {RESULTS} in {directory} or in its {_BLACKBOARD}",
        hint=f"name the directory that holds {RESULTS}, or the state root above its {_BLACKBOARD}",
    )


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for reading. Raises `FileNotFoundError`, or `Misuse` for anything else than a file."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "is a symbolic link" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise Misuse(f"{path} {what}", hint="put a readable regular file there") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Misuse(f"{path} is not a regular file", hint="put a readable regular file there")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole of a small file. Raises as `open_file`, and `Misuse` for more than `limit` bytes."""
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise Misuse(f"{path} has more than {limit} bytes", hint="that is no file of a state directory")
    return content
