"""Trying the kernel's isolation layers for real. A program of its own, run as `python -I -S layer_trials.py`.

Each layer is tried in a forked child, since a namespace or a filter cannot be taken off again. This process
has one thread, so forking it is safe, which it would not be inside `ratchet`. Prints one JSON object: for
each layer whether it works, and what it said.
"""

import ctypes
import errno
import json
import os
import sys
import tempfile
from collections.abc import Callable

NEWNS, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
MS_REC_PRIVATE = 0x4000 | (1 << 18)
LANDLOCK_CREATE_RULESET = 444  # the same number on every architecture
LANDLOCK_VERSION = 1
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2

libc = ctypes.CDLL(None, use_errno=True)


class Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction)))


def called(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def unshare(flags: int) -> str:
    """Enter new namespaces, alone when we may, else inside a user namespace. Says which."""
    try:
        called(libc.unshare(flags))
    except PermissionError:
        enter_user_namespace(flags)
        return "inside a user namespace"
    return "directly"


def enter_user_namespace(flags: int = 0) -> None:
    uid, gid = os.getuid(), os.getgid()
    called(libc.unshare(NEWUSER | flags))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  pathlib is slow to import
            file.write(text)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode())
    called(libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None))


def user_namespace() -> str:
    enter_user_namespace()
    return "works"


def network_namespace() -> str:
    how = unshare(NEWNET)
    with open("/proc/self/net/dev") as file:  # noqa: PTH123
        names = [line.partition(":")[0].strip() for line in file if ":" in line]
    if names != ["lo"]:
        raise OSError(errno.EINVAL, f"a new network namespace still shows {', '.join(names)}")
    return f"works {how}"


def mount_namespace() -> str:
    how = unshare(NEWNS)
    private_tmpfs()
    return f"works {how}"


def pid_namespace() -> str:
    how = unshare(NEWPID)
    child = os.fork()
    if child == 0:
        os._exit(0 if os.getpid() == 1 else 1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(errno.EINVAL, "a child of the new namespace is not its process 1")
    return f"works {how}"


def overlayfs() -> str:
    how = unshare(NEWNS)
    base = private_tmpfs()
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(f"{base}/{name}")  # noqa: PTH102
    layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
    # Outside the first user namespace the overlay keeps its marks in user.* attributes.
    options = layers if how == "directly" else f"{layers},userxattr"
    mount("overlay", f"{base}/merged", "overlay", 0, options)
    return f"works {how}"


def private_tmpfs() -> str:
    mount("none", "/", "none", MS_REC_PRIVATE)
    mount("tmpfs", SCRATCH, "tmpfs")
    return SCRATCH


def landlock() -> str:
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(LANDLOCK_VERSION))
    return f"ABI {called(version)}"


def seccomp_filter() -> str:
    allow_all = Instruction(0x06, 0, 0, 0x7FFF0000)
    program = Program(1, ctypes.pointer(allow_all))
    called(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    called(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))
    return "works"


def tried(layer: Callable[[], str]) -> tuple[bool, str]:
    """Whether `layer` works in a forked child, and what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = "+" + layer()
        except (OSError, AttributeError) as error:
            said = "-" + (getattr(error, "strerror", None) or str(error))
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said.startswith("+"), said[1:] or "the trial died"


LAYERS = {
    "user namespace": user_namespace,
    "network namespace": network_namespace,
    "mount namespace": mount_namespace,
    "pid namespace": pid_namespace,
    "landlock": landlock,
    "seccomp filter": seccomp_filter,
    "overlayfs": overlayfs,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ratchet-trial-") as SCRATCH:
        json.dump({name: tried(layer) for name, layer in LAYERS.items()}, sys.stdout)
