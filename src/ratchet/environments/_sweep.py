"""Removing environments that nobody has used for long, and what was left of those that never came to be."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import time
from pathlib import Path

_DAY = 24 * 3600.0
_OURS = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{8})?")


def sweep(root: Path, keep_days: int, seconds: float) -> None:
    """Look through all environments in `root`. One that is being made is left alone, however long that takes."""
    now = time.time()
    ours = [each for each in root.iterdir() if _OURS.fullmatch(each.name)]
    links = [each for each in ours if each.is_symlink()]
    old = [link for link in links if _age(link.resolve(), now) > keep_days * _DAY]
    for link in old:
        # First what makes it count, then the rest.
        link.unlink(missing_ok=True)
    used = {link.resolve() for link in links if link not in old}
    for directory in ours:
        if directory.is_symlink() or directory in used:
            continue
        if _age(directory, now) > seconds and _abandoned(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _abandoned(directory: Path) -> bool:
    """Whether nobody is making this environment."""
    lock = directory.with_name(directory.name.partition("-")[0]).with_suffix(".lock")
    with contextlib.suppress(OSError), lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _age(directory: Path, now: float) -> float:
    try:
        return now - directory.stat().st_mtime
    except OSError:
        return float("inf")
