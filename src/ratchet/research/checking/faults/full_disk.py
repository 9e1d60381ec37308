"""A program that measures on a full disk, and once more when there is room again. It prints how both ended.

It mounts a small file system over its directory for temporary files, which is seen by nobody else and gone with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from ratchet.research.checking.faults.scene import measured, open_scene
from ratchet.sandbox.inside.linux import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    mount,
    unshare,
)

_DISK_BYTES = 4 * 1024**2
_LEFT_BYTES = 256 * 1024
_WRITES = 'dd if=/dev/zero of="$RATCHET_OUT/answer" bs=65536 count=12'


def main(place: Path) -> None:
    small, scene = place / "small", place / "scene"
    small.mkdir()
    scene.mkdir()
    _mount(small)
    print(json.dumps(asyncio.run(_told(scene, small))))


def _mount(directory: Path) -> None:
    user, group = os.getuid(), os.getgid()
    if user != 0:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    unshare(CLONE_NEWNS)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", str(directory), "tmpfs", MS_NOSUID, f"size={_DISK_BYTES},mode=700")


async def _told(place: Path, small: Path) -> dict[str, object]:
    async with open_scene(place) as scene:
        bench = scene.with_trial(_WRITES)
        filler = small / "filler"
        filler.write_bytes(bytes(_DISK_BYTES - _LEFT_BYTES))
        full = await measured(bench)
        filler.unlink()
        after = await measured(bench)
    return {
        "status": full.status,
        "score": full.score,
        "reason": full.reason,
        "after": None if after.status is None else after.told,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
