"""The disk below the home: room, and whether writes arrive."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ratchet.doctor.check import Check

MIB = 1024**2
GIB = 1024**3


def disk(home: Path, *, warn_below: int = GIB, fail_below: int = 100 * MIB) -> list[Check]:
    """Free space at `home`, and a file written, synced and removed there."""
    place = next(each for each in (home.absolute(), *home.absolute().parents) if each.is_dir())
    return [_space(place, warn_below, fail_below), _writable(place)]


def _space(place: Path, warn_below: int, fail_below: int) -> Check:
    free = shutil.disk_usage(place).free
    detail = f"{_size(free)} free at {place}"
    if free < fail_below:
        return Check("disk space", "fail", f"{detail}, less than {_size(fail_below)}", "free some space")
    if free < warn_below:
        return Check("disk space", "warn", f"{detail}, less than {_size(warn_below)}", "free some space")
    return Check("disk space", "ok", detail)


def _writable(place: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"ratchet")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        mend = "make the directory writable for this user, or set RATCHET_HOME to one that is"
        return Check("disk writes", "fail", f"{place} cannot be written: {error.strerror}", mend)
    return Check("disk writes", "ok", f"{place} takes writes, and fsync works")


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
