"""Directories in memory, for workspaces that are small and many.

Files in memory cost a tenth of those on disk, and there is nothing that must outlast the machine: what counts is in the
repository. They do use memory, so this is for candidates whose writes are limited, not for sessions that install much.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from ratchet.workspaces.claims import dead_claims, has_claims, marked_repository
from ratchet.workspaces.mount import unmount_below
from ratchet.workspaces.removal import remove_tree

_LEAST_BYTES = 256 * 1024 * 1024


def memory_directory(repository: Path, shared: Path = Path("/dev/shm")) -> Path | None:
    """Where the workspaces of a repository can be in memory; `None` when this machine has no room for that."""
    try:
        room = os.statvfs(shared)
        if (
            room.f_flag & os.ST_NOEXEC
            or room.f_bavail * room.f_frsize < _LEAST_BYTES
            or not _is_memory(shared)
        ):
            return None
        own = shared / f"ratchet-{os.getuid()}"
        own.mkdir(mode=0o711, exist_ok=True)
        found = own.lstat()
    except OSError:
        return None
    # Everybody may write into the shared directory: this one could be somebody else's trap.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return None
    _sweep(own)
    return own / hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]


def _sweep(own: Path) -> None:
    """Free what repositories that are gone have left, unless a process still works there. Nobody else will prune it."""
    for root in own.iterdir():
        repository = marked_repository(root)
        if repository is None or repository.exists():
            continue
        for claim in dead_claims(root):
            unmount_below(root / claim)
        if not has_claims(root):
            remove_tree(root)


def _is_memory(directory: Path) -> bool:
    mounts = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
    return [mount[2] for mount in mounts if mount[1] == str(directory)][-1:] == ["tmpfs"]
