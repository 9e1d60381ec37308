"""Landlock: a second wall around files, and around what namespaces leave open when the network is on."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from .linux import Prepared, called, libc, system_call

# The same numbers on every architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION, _BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
READ = _EXECUTE | _READ_FILE | _READ_DIR
# Each version of the interface knows more rights; this is how many bits version 1, 2, … have.
_RIGHTS_BITS = (13, 14, 15, 15, 16)
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 3
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2


def version() -> int:
    """The version of the interface that this kernel has. Raises `OSError` where it has none."""
    return called(system_call(_CREATE, None, 0, _VERSION), "landlock")


def guards_truncation() -> bool:
    """Whether it keeps a file that may only be read from being emptied."""
    return version() >= 3


_Attributes = ctypes.c_uint64 * 3


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(
    *, files: bool, readable: Iterable[str] = (), writable: Iterable[str] = (), network: bool = True
) -> None:
    """Restrict this process and all it starts, by `rules` of its own. Needs `no_new_privs`."""
    own = rules(files=files, readable=readable, writable=writable, network=network)
    if own is not None:
        restriction(own)()
        os.close(own)


def restriction(rules: int) -> Prepared:
    """Restricts whoever calls it, and all that it starts. Needs `no_new_privs`."""
    return Prepared("landlock", libc.syscall, _RESTRICT, rules, 0)


def rules(
    *, files: bool, readable: Iterable[str] = (), writable: Iterable[str] = (), network: bool = True
) -> int | None:
    """A descriptor of rules: only these files if `files`, and never to signal or to connect by an abstract socket
    beyond oneself. Paths that are absent are passed over. `None` if there is nothing that the kernel could forbid."""
    known = version()
    rights = (1 << _RIGHTS_BITS[min(known, len(_RIGHTS_BITS)) - 1]) - 1
    tcp = _TCP if known >= 4 and not network else 0
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if known >= 6 else 0
    if not (files or tcp or scoped):
        return None
    attributes = _Attributes(rights if files else 0, tcp, scoped)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    made = called(system_call(_CREATE, ctypes.byref(attributes), size, 0), "landlock ruleset")
    if files:
        for path in readable:
            _allow(made, path, rights & READ)
        for path in writable:
            _allow(made, path, rights)
    return made


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        rights &= _ON_FILES
    rule = _Beneath(rights, parent)
    called(system_call(_ADD, rules, _BENEATH, ctypes.byref(rule), 0), f"landlock rule for {path}")
    os.close(parent)
