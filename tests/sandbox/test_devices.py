"""Devices that a command is given: their nodes, and no others."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.sandbox import Bounds, Node, Policy, run

COUNT = """
import os, stat, sys
from pathlib import Path
def usable(path):
    try:
        with open(path, "rb") as file:
            return file.read(2).hex()
    except OSError as error:
        return error.strerror
shm = os.statvfs("/dev/shm")
shown = [usable(path) if Path(path).exists() else None for path in sys.argv[1:]]
print([shown, shm.f_blocks * shm.f_frsize])
"""


@pytest.fixture
def nodes() -> Iterator[Path]:
    """Two nodes of the device that is all zeros, in a directory that every user may enter."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    with tempfile.TemporaryDirectory(prefix="ratchet-test-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        for number in (0, 1):
            path = Path(place) / f"gpu{number}"
            try:
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
            except PermissionError:
                pytest.skip("this machine lets no device nodes be made")
            path.chmod(0o666)
        yield Path(place)


def seen(nodes: Path, policy: Policy, bounds: Bounds | None = None) -> list[object]:
    argv = [sys.executable, "-I", "-S", "-c", COUNT, str(nodes / "gpu0"), str(nodes / "gpu1")]
    done = asyncio.run(run(argv, cwd=Path("/tmp"), policy=policy, bounds=bounds))
    assert done.ok, done
    found: list[object] = eval(done.stdout)
    return found


def test_a_command_uses_the_devices_that_it_was_given_and_sees_no_others(nodes: Path) -> None:
    assert seen(nodes, Policy())[0] == [None, None]
    assert seen(nodes, Policy(devices=(nodes / "gpu1",)))[0] == [None, "0000"]
    assert seen(nodes, Policy(devices=(nodes / "gpu0", nodes / "gpu1")))[0] == ["0000", "0000"]


def test_a_device_that_only_root_may_use_can_be_given_by_root(nodes: Path) -> None:
    (nodes / "gpu0").chmod(0o600)
    assert seen(nodes, Policy(devices=(nodes / "gpu0",)))[0] == ["0000", None]


def test_what_is_no_device_is_not_shown_as_one(nodes: Path, tmp_path: Path) -> None:
    (nodes / "link").symlink_to(nodes / "gpu0")
    (nodes / "file").write_text("")
    for name, reason in (("link", "no character device"), ("file", "no character"), ("gone", "No such file")):
        with pytest.raises(Misuse, match=reason):
            seen(nodes, Policy(devices=(nodes / name,)))
    with pytest.raises(Misuse, match="no devices"):
        asyncio.run(run(Node("def run(_): pass"), policy=Policy(devices=(nodes / "gpu0",))))


def test_shared_memory_has_the_size_that_was_asked_for(nodes: Path) -> None:
    mib = 2**20
    assert seen(nodes, Policy(), Bounds(memory_bytes=64 * mib))[1] == 64 * mib
    assert seen(nodes, Policy(), Bounds(memory_bytes=64 * mib, shared_memory_bytes=8 * mib))[1] == 8 * mib
    assert seen(nodes, Policy(), Bounds(memory_bytes=None, shared_memory_bytes=8 * mib))[1] == 8 * mib
