"""Entering new namespaces, and the unprivileged user that each sandbox has which root starts.

The number of that user belongs to nothing else on the machine. What a sandbox is shown of root's files is mounted so
that they seem to be its own, and what it makes there is root's outside; to all else it is a stranger.
"""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Iterable

from . import names
from .linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    libc,
    prctl,
    unshare,
)

_FLAGS = {
    names.USER: CLONE_NEWUSER,
    names.PID: CLONE_NEWPID,
    names.MOUNT: CLONE_NEWNS,
    names.NETWORK: CLONE_NEWNET,
    names.IPC: CLONE_NEWIPC,
    names.UTS: CLONE_NEWUTS,
}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_HOST = b"sandbox"
# A user keeps the own number, so that files belong to whom they belong. Root, and the user in its place, gets an
# ordinary one: programs that find themselves root expect rights that are not there, and a sandbox inside this one could
# not map it.
_INSTEAD_OF_ROOT = 1000
# Between what systems give to containers and what the first 31 bits can hold; a process adds its own number.
FIRST, _ALL = 0x70000000, 0xFFFFFFFF
_PR_GET_PDEATHSIG = 2


def enter(layers: list[str]) -> None:
    """Enter those namespaces that are among `layers`; the pid namespace is for the next child."""
    flags = 0
    for layer in layers:
        flags |= _FLAGS.get(layer, 0)
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        # Root without capabilities keeps its groups, as any other user does.
        with contextlib.suppress(PermissionError):
            os.setgroups([])
    if flags:
        unshare(flags)
    if flags & CLONE_NEWUSER:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_inside(uid)} {uid} 1")
        _write("/proc/self/gid_map", f"{_inside(gid)} {gid} 1")
    if flags & CLONE_NEWNET:
        _raise_loopback()
    if flags & CLONE_NEWUTS:
        libc.sethostname(_HOST, len(_HOST))


def _inside(number: int) -> int:
    return _INSTEAD_OF_ROOT if number == 0 or number >= FIRST else number


def _raise_loopback() -> None:
    """A new network namespace has a loopback of its own, switched off. Programs talk to themselves over it."""
    import socket  # slow to import, and an agent CLI has no network namespace

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        request = array.array("B", struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(link, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", request, 16)
        fcntl.ioctl(link, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def own_number() -> int:
    """The user for this process, and for all that it starts."""
    return FIRST + os.getpid()


def user_mapping(number: int) -> int:
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


def become_user(number: int, pipes: Iterable[int] = ()) -> None:
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
