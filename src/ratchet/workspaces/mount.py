"""Overlay mounts, by the kernel's own call."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_MS_NOSUID = 2
_MS_NODEV = 4
_MNT_DETACH = 2
_OPTIONS = "index=off,metacopy=off,redirect_dir=off"
_libc = ctypes.CDLL(None, use_errno=True)


def mount_overlay(lower: Path, upper: Path, work: Path, at: Path, *, volatile: bool) -> None:
    """Show `lower` at `at`, writable, with what is written kept in `upper`. Raises `OSError`.

    A `volatile` mount is never written to disk when it ends: otherwise the end of each would wait for the whole disk.
    """
    for path in (lower, upper, work):
        if any(character in str(path) for character in ",:\\"):
            raise OSError(0, f"{path} has a comma, a colon or a backslash in it")
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{_OPTIONS}{',volatile' if volatile else ''}"
    _call(_libc.mount, b"overlay", os.fsencode(at), b"overlay", _MS_NOSUID | _MS_NODEV, options.encode())


def unmount(at: Path) -> None:
    """End a mount, at once for new users and as soon as they leave for the present ones. None there is fine."""
    with contextlib.suppress(OSError):
        _call(_libc.umount2, os.fsencode(at), _MNT_DETACH)


def unmount_below(directory: Path) -> None:
    """End every mount below a directory."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return
    points = [_plain(line.split(" ")[4]) for line in lines]
    for point in sorted(points, reverse=True):
        if Path(point).is_relative_to(directory):
            unmount(Path(point))


def _plain(escaped: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        escaped = escaped.replace(octal, character)
    return escaped


def _call(function: object, *arguments: object) -> None:
    if function(*arguments) != 0:  # type: ignore[operator]
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
