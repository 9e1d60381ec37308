"""Which names a tree may hold.

Git's own disguises of `.git` count too: what macOS and Windows file systems would read as `.git`, so that a commit made
here is safe to check out anywhere and passes `git fsck`.
"""

from __future__ import annotations

import functools
import re

from ratchet.kernel import Misuse

# Code points that HFS+ ignores in names.
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 255


@functools.lru_cache(maxsize=4096)
def unsafe_name(name: str) -> str | None:
    """Why one component of a path cannot be checked out anywhere, or `None`."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "is not a file name"
    if any(plain_name(part) in (".git", "git~1") for part in name.split("\\")):
        return "would be read as a git directory"
    return None


def plain_name(name: str) -> str:
    """The name as a file system of macOS or Windows reads it."""
    return name.translate(_IGNORED).partition(":")[0].rstrip(" .").lower()


@functools.lru_cache(maxsize=4096)
def unwanted_name(name: str) -> str | None:
    """Why a new name is refused, or `None`. Stricter than `unsafe_name`, which old commits must pass."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if len(encoded) > _LONGEST:
        return f"has a name of more than {_LONGEST} bytes"
    if _CONTROL.search(name):
        return "has a control character in its name"
    return unsafe_name(name)


def split_path(path: str) -> list[str]:
    """The components of a path in a tree. Raises `Misuse` for a path that could leave it."""
    parts = path.split("/")
    for part in parts:
        reason = unwanted_name(part)
        if reason is not None:
            raise Misuse(f"the path {path!r} {reason}", hint="give a relative path such as src/app.py")
    return parts
