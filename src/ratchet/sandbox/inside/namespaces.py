"""Entering new namespaces."""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import array
import contextlib
import fcntl
import os
import struct

from . import names
from .linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    libc,
    unshare,
)
from .own_user import FIRST

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
