"""The system calls that the standard library does not have."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 1 << 14, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_ATTR_IDMAP = 0x00100000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 22, 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# These have the same number on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _CLONE3, _OPENAT2, _MOUNT_SETATTR = 428, 429, 435, 437, 442
_CLONE_INTO_CGROUP = 0x200000000
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _AT_RECURSIVE = 1, 0x1000, 0x8000
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 0x4, 0x40
_RESOLVE_NO_SYMLINKS, _RESOLVE_IN_ROOT = 0x04, 0x10
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
_TO_TRACE = (ctypes.c_uint32 * 6)(1 << 19, 1 << 19)

machine = os.uname().machine
libc = ctypes.CDLL(None, use_errno=True)


def called(result: int, what: str = "") -> int:
    """The result of a system call, or its error as an exception."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}" if what else os.strerror(code))
    return result


def system_call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | object | None) -> int:
    """A raw system call; whole numbers are passed in full width, which a variadic function needs."""
    full = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result: int = libc.syscall(ctypes.c_long(number), *full)
    return result


class Prepared:
    """A call of the C library whose arguments are there already: a fork that makes it copies few pages for that."""

    def __init__(self, what: str, function: Callable[..., int], *arguments: object) -> None:
        self._what = what
        self._function = function
        self._arguments = tuple(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)

    def __call__(self) -> None:
        if self._function(*self._arguments) < 0:
            called(-1, self._what)


def prctl(option: int, *arguments: int) -> None:
    prepared_prctl(option, *arguments)()


def prepared_prctl(option: int, *arguments: int | bytes) -> Prepared:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return Prepared(f"prctl {option}", libc.prctl, option, *padded)


def unshare(flags: int) -> None:
    called(libc.unshare(flags), f"unshare {flags:#x}")


def setns(descriptor: int, kind: int) -> None:
    called(libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(source), os.fsencode(target), os.fsencode(kind))
    result = libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None)
    called(result, f"mount {kind} on {target}")


def pivot_root(new: str, old: str) -> None:
    called(system_call(_PIVOT_ROOT[machine], os.fsencode(new), os.fsencode(old)), "pivot_root")


def clone_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at `path` and below, attached nowhere yet."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return called(system_call(_OPEN_TREE, -100, os.fsencode(path), flags), f"open_tree {path}")


def attach_tree(tree: int, target: int) -> None:
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    called(system_call(_MOVE_MOUNT, tree, b"", target, b"", flags), "move_mount")


def restrict_tree(tree: int, attributes: int, *, below: bool = True) -> None:
    """Add mount attributes to a tree, and to all that is mounted below it."""
    words = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if below else 0)
    called(system_call(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(words), 32), "mount_setattr")


def map_tree(tree: int, users: int) -> None:
    """Let the files of a tree, and of all that is mounted below it, belong to whom the user namespace `users` says."""
    words = (ctypes.c_uint64 * 4)(_ATTR_IDMAP, 0, 0, users)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    called(system_call(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(words), 32), "mount_setattr")


def open_below(root: int, path: str, *, symlinks: bool = True) -> int:
    """An O_PATH descriptor of `path`, looked up as if `root` were the root directory."""
    resolve = _RESOLVE_IN_ROOT | (0 if symlinks else _RESOLVE_NO_SYMLINKS)
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, resolve)
    return called(system_call(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), 24), f"open {path}")


def fork_into(cgroup: int) -> int:
    """Fork a process that has one thread, the child being in the cgroup `cgroup` from the start. To move it there later
    has the whole machine wait for milliseconds."""
    words = (ctypes.c_uint64 * 11)(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    return called(system_call(_CLONE3, ctypes.byref(words), ctypes.sizeof(words)), "clone3")


def forgo_capabilities() -> None:
    """Let no program that is run from here on bring any, for this process and all it starts. Keeps what is held."""
    for number in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break
    libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)


drop_capabilities = Prepared("capset", libc.capset, _CAPABILITY_HEADER, _NO_CAPABILITIES)
"""Give up those that are held."""
keep_tracing = Prepared("capset", libc.capset, _CAPABILITY_HEADER, _TO_TRACE)
"""Give up those that are held, but for looking at the processes of this user namespace that let no other do so."""
