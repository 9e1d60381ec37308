"""Whether there was room to write."""

from __future__ import annotations

import os
from pathlib import Path

_LEAST_BYTES = 1024 * 1024


def lacks_room(place: Path) -> bool:
    """Whether the disk of `place` is full, and not by what was written there."""
    try:
        told = os.statvfs(place)
        if told.f_bavail * told.f_frsize >= _LEAST_BYTES:
            return False
        written = sum(each.lstat().st_blocks * 512 for each in place.rglob("*"))
    except OSError:
        return False
    return written < told.f_blocks * told.f_frsize // 2
