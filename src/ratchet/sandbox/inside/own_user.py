"""An unprivileged user for each sandbox that root starts.

Its number belongs to nothing else on the machine. What a sandbox is shown of root's files is mounted so that they seem
to be its own, and what it makes there is root's outside; to all else it is a stranger.
"""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from .linux import CLONE_NEWUSER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, libc, prctl, unshare

# Between what systems give to containers and what the first 31 bits can hold; a process adds its own number.
FIRST, _ALL = 0x70000000, 0xFFFFFFFF
_PR_GET_PDEATHSIG = 2


def own_number() -> int:
    """The user for this process, and for all that it starts."""
    return FIRST + os.getpid()


def mapping(number: int) -> int:
    """A descriptor of a user namespace in which root's files belong to `number`, and all others to whom they belong."""
    lines = f"0 {number} 1\n1 1 {number - 1}\n{number + 1} {number + 1} {_ALL - number - 1}\n"
    hear, tell = os.pipe()
    stay, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(go)
            unshare(CLONE_NEWUSER)
            os.write(tell, b"x")
            os.read(stay, 1)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        os.read(hear, 1)
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{kind}", "w") as file:
                file.write(lines)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (hear, stay, go):
            os.close(descriptor)
        os.waitpid(child, 0)


def become(number: int, pipes: Iterable[int] = ()) -> None:
    """Be that user from now on. It can open the `pipes` by their names in /proc, as programs do with /dev/stderr."""
    for descriptor in pipes:
        if _is_nameless_pipe(descriptor):
            os.fchown(descriptor, number, number)
    parent, deadly = os.getppid(), ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(deadly), 0, 0, 0)
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)
    # The kernel takes both away from a process that becomes another user.
    prctl(PR_SET_DUMPABLE, 1)
    if deadly.value:
        prctl(PR_SET_PDEATHSIG, deadly.value)
        if os.getppid() != parent:
            os._exit(1)


def _is_nameless_pipe(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    if not stat.S_ISFIFO(found.st_mode):
        return False
    ends = os.pipe()
    try:
        return found.st_dev == os.fstat(ends[0]).st_dev
    finally:
        for end in ends:
            os.close(end)
