"""Trying the layers of the sandbox for real, each in a process of its own, since none can be taken off again.

Prints one JSON object: for each layer whether it works, and what it said.
"""

# pathlib is slow to import.
# ruff: noqa: PTH102, PTH110, PTH116, PTH120, PTH123, PTH208
from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from functools import partial

from . import cgroup, landlock, names, namespaces, rlimits, seccomp, view
from .linux import (
    MS_PRIVATE,
    MS_REC,
    PR_SET_NO_NEW_PRIVS,
    drop_capabilities,
    forgo_capabilities,
    mount,
    prctl,
)
from .tree import Piece

_SCOPE_SECONDS = 10
_HERE = os.path.dirname(os.path.realpath(__file__))
# Kernels make some of these in every network namespace; they lead nowhere.
_OWN_LINKS = {
    "lo",
    "sit0",
    "ip6tnl0",
    "tunl0",
    "gre0",
    "gretap0",
    "erspan0",
    "ip_vti0",
    "ip6_vti0",
    "ip6gre0",
}


def main() -> None:
    """Try all of them. What is entered through a user namespace is tried directly where there is none."""
    user = _tried(partial(namespaces.enter, [names.USER]))
    delegated, scope = _tried(_delegated), cgroup.scope_argv(os.environ)
    outer = [names.USER] if user[0] else []
    trials: dict[str, Callable[[], object]] = {
        names.PID: partial(_pid, outer),
        names.MOUNT: partial(_mount, outer),
        names.NETWORK: partial(_network, outer),
        names.IPC: partial(namespaces.enter, [*outer, names.IPC]),
        names.UTS: partial(namespaces.enter, [*outer, names.UTS]),
        names.CAPABILITIES: partial(_capabilities, outer),
        names.NO_NEW_PRIVILEGES: _no_new_privileges,
        names.LANDLOCK: _landlock,
        names.SECCOMP: _seccomp,
        names.LIMITS: _limits,
        names.OVERLAY: partial(_overlay, outer),
    }
    if os.geteuid() == 0:
        trials[names.OWN_USER] = _own_user
    tried = {names.USER: user} | {name: _tried(trial) for name, trial in trials.items()}
    if scope and not delegated[0]:
        tried[names.SCOPE] = _tried(partial(_in_scope, scope))
    else:
        tried[names.CGROUP] = delegated
    json.dump(tried, sys.stdout)


def _tried(trial: Callable[[], object]) -> tuple[bool, str]:
    """Whether a trial passes, and what it said of that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = f"+{trial() or 'works'}"
        except OSError as error:
            said = f"-{error.strerror or error}"
        except BaseException as error:  # noqa: BLE001 - a fork must never return to the code above it
            said = f"-{type(error).__name__}: {error}"
        os.write(writer, said.encode(errors="replace"))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said.startswith("+"), said[1:] or "the trial died"


def _pid(outer: list[str]) -> None:
    namespaces.enter([*outer, names.PID])
    passed, said = _tried(os.getpid)
    if not passed or said != "1":
        raise OSError(errno.EINVAL, f"the first process of a new pid namespace is {said}")


def _mount(outer: list[str]) -> None:
    """The view that every command gets, /proc included, which needs a pid namespace."""
    namespaces.enter([*outer, names.PID, names.MOUNT])
    passed, said = _tried(_build_view)
    if not passed:
        raise OSError(errno.EINVAL, said)


def _build_view() -> None:
    view.build(view.FileView())
    view.guard_kernel_settings()
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    if processes != ["1"] or os.path.exists("/home"):
        raise OSError(errno.EINVAL, "the view still shows what is outside")


def _network(outer: list[str]) -> None:
    namespaces.enter([*outer, names.NETWORK])
    with open("/proc/self/net/dev") as file:
        links = {line.partition(":")[0].strip() for line in file if ":" in line}
    if links - _OWN_LINKS:
        raise OSError(errno.EINVAL, f"a new network namespace still shows {', '.join(sorted(links))}")


def _own_user() -> str:
    """Python is shown to another user, who can read it and owns it."""
    number = namespaces.own_number()
    users = namespaces.user_mapping(number)
    python = tuple(path for path in {sys.prefix, sys.base_prefix} if not path.startswith("/usr"))
    pieces = view.pieces_of(view.FileView(python=python, readable=(_HERE,)), users)
    namespaces.become_user(number)
    namespaces.enter([names.USER, names.PID, names.MOUNT])
    passed, said = _tried(partial(_see_own, pieces))
    if not passed:
        raise OSError(errno.EINVAL, said)
    return f"users from {number - os.getpid()} on"


def _see_own(pieces: list[Piece]) -> None:
    view.build(view.FileView(), pieces)
    if os.stat(_HERE).st_uid != os.getuid():
        raise OSError(errno.EINVAL, "what is root's does not seem its own")


def _capabilities(outer: list[str]) -> None:
    if outer:
        namespaces.enter(outer)
    forgo_capabilities()
    drop_capabilities()
    with open("/proc/self/status") as file:
        held = {line.split()[1] for line in file if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb"))}
    if held != {"0" * 16}:
        raise OSError(errno.EINVAL, "some stay in spite of it")


def _delegated() -> str:
    return f"limits {', '.join(cgroup.find().controllers)}"


def _in_scope(scope: list[str]) -> str:
    """What systemd delegates to a program that is started so."""
    import subprocess  # slow to import, and few machines come here

    program = "import sys; sys.path.insert(0, sys.argv[1]); from inside.cgroup import main; main()"
    argv = [*scope, sys.executable, "-I", "-S", "-c", program, os.path.dirname(_HERE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_SCOPE_SECONDS, check=False)
    if done.returncode:
        raise OSError(errno.EACCES, (done.stderr.strip() or "systemd-run failed").splitlines()[-1])
    return f"limits {done.stdout.strip()}"


def _no_new_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _landlock() -> str:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(files=True, readable=["/usr"])
    _must_fail(lambda: os.open("/proc/self/status", os.O_RDONLY), PermissionError)
    return f"ABI {landlock.version()}"


def _seccomp() -> None:
    if not seccomp.known():
        raise OSError(errno.ENOSYS, f"the system calls of {os.uname().machine} are not known here")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    seccomp.node_filter(os.getpid(), writes=False).install()
    _must_fail(socket.socket, PermissionError)


def _limits() -> None:
    rlimits.limit(cpu_seconds=60, file_bytes=1, address_bytes=1 << 30)
    _must_fail(lambda: bytearray(2 << 30), MemoryError)


def _overlay(outer: list[str]) -> None:
    namespaces.enter([*outer, names.MOUNT])
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    base = view.SCRATCH[0]
    mount("tmpfs", base, "tmpfs")
    for each in ("lower", "upper", "work", "merged"):
        os.mkdir(f"{base}/{each}")
    places = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
    # Outside the first user namespace the overlay keeps its marks in user.* attributes.
    mount("overlay", f"{base}/merged", "overlay", 0, f"{places},userxattr" if outer else places)


def _must_fail(forbidden: Callable[[], object], error: type[Exception]) -> None:
    try:
        forbidden()
    except error:
        return
    raise OSError(errno.EINVAL, "it is on, and stops nothing")
