"""A cgroup for each command: limits that the kernel keeps for a whole tree, and its own count of what that uses.

Only where one is delegated to this user: by a service with `Delegate=yes`, by the scope of systemd that Ratchet asks
for, or by whoever runs a machine without systemd. The limits stand in one directory and the processes in another below
it, so that not even a sandbox that mounts its own cgroup can reach them.
"""

# pathlib is slow to import.
# ruff: noqa: PTH102, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208
from __future__ import annotations

import contextlib
import errno
import os
import pwd
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .linux import fork_into
from .spec import CommandSpec, most_tasks

_USED, _NEEDED = ("memory", "pids", "cpu", "io"), {"memory", "pids"}
# Where the processes of Ratchet go, since none may stay in a cgroup that hands controllers on.
OWN = "ratchet"
_SCOPE = "ratchet-scope-"
_RUN, _PROCESSES = "ratchet-run-", "processes"
_SYSTEMD, BUS = "/run/systemd/system", ("XDG_RUNTIME_DIR", "DBUS_SESSIONBUS_ADDRESS")
_MARKS = ("user.delegate", "trusted.delegate")
_TRIES = 20
# Half of what others have by default: when all want the processor or the disk, Ratchet itself comes first.
_WEIGHT = 50


class Delegation(NamedTuple):
    """A directory in which this process may make cgroups, and what can be limited in them."""

    directory: str
    controllers: tuple[str, ...]


def find(proc: str = "/proc/self", systemd: str = _SYSTEMD) -> Delegation:
    """What is delegated to this process. Nothing is changed. Raises `OSError`, which says why nothing is."""
    directory = _own_directory(proc)
    if os.path.basename(directory) == OWN:
        directory = os.path.dirname(directory)
    found = _words(os.path.join(directory, "cgroup.controllers"))
    controllers = tuple(each for each in _USED if each in found)
    if missing := _NEEDED - set(controllers):
        raise OSError(errno.ENOENT, f"no controller {' or '.join(sorted(missing))} in {directory}")
    files = (directory, *(os.path.join(directory, f"cgroup.{each}") for each in ("procs", "subtree_control")))
    if not all(os.access(each, os.W_OK) for each in files):
        raise OSError(errno.EACCES, f"{directory} is not delegated to this user")
    if os.path.exists(systemd) and not _is_marked(directory):
        raise OSError(errno.EACCES, f"systemd has not delegated {directory}")
    return Delegation(directory, controllers)


def prepare() -> Delegation | None:
    """Make what is delegated ready for runs, if anything is: processes that are in it go into a cgroup of their own."""
    try:
        found = find()
        enable(found)
    except OSError:
        return None
    return found


def enable(delegation: Delegation) -> None:
    """Have its controllers handed on to the cgroups in it. Raises `OSError`."""
    top, own = delegation.directory, os.path.join(delegation.directory, OWN)
    with contextlib.suppress(FileExistsError):
        os.mkdir(own)
    for _ in range(_TRIES):
        # The root of all, which has no type, may hand on and have processes.
        if os.path.exists(os.path.join(top, "cgroup.type")):
            for pid in _words(os.path.join(top, "cgroup.procs")):
                with contextlib.suppress(ProcessLookupError):
                    _write(os.path.join(own, "cgroup.procs"), pid)
        try:
            _write(
                os.path.join(top, "cgroup.subtree_control"), " ".join(f"+{c}" for c in delegation.controllers)
            )
        except OSError as error:
            if error.errno != errno.EBUSY:  # a process was started there in between
                raise
        else:
            return
    raise OSError(errno.EBUSY, f"processes are started in {top} all the time")


class RunGroup:
    """The cgroup of one command. Made by a process that may; who reads and writes its files later may have given up
    every right, and see nothing of it."""

    def __init__(self, delegation: Delegation, spec: CommandSpec) -> None:
        """Raises `OSError` if it cannot be made as it should be."""
        self._parent = os.open(delegation.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{_RUN}{os.getpid()}"
        self._controllers = delegation.controllers
        _sweep(delegation.directory, self._parent)
        top = os.path.join(delegation.directory, self._name)
        for each in (top, os.path.join(top, _PROCESSES)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each)
        for file, value in self._limits(spec):
            _write(os.path.join(top, file), value)
        for file in ("cpu.weight", "io.weight"):
            with contextlib.suppress(OSError):  # io.weight needs a scheduler of the disk that knows it
                _write(os.path.join(top, file), str(_WEIGHT))
        self._processes = os.open(os.path.join(top, _PROCESSES), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._joining = os.open(os.path.join(top, _PROCESSES, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
        self._cpu = os.open(os.path.join(top, "cpu.stat"), os.O_RDONLY | os.O_CLOEXEC)
        self._memory: int | None = None
        if "memory" in self._controllers:
            self._memory = os.open(os.path.join(top, "memory.events"), os.O_RDONLY | os.O_CLOEXEC)

    def _limits(self, spec: CommandSpec) -> Iterable[tuple[str, str]]:
        if "memory" in self._controllers and spec.memory_bytes is not None:
            yield "memory.max", str(spec.memory_bytes)
            if os.path.exists("/proc/swaps") and len(_lines("/proc/swaps")) > 1:
                yield "memory.swap.max", "0"
            # All of the tree ends, instead of a part that the rest then waits for.
            yield "memory.oom.group", "1"
        if "pids" in self._controllers:
            yield "pids.max", str(most_tasks(spec.processes))

    def fork(self, *, runs_python: bool = False) -> tuple[int, bool]:
        """Fork, and whether the child is in this cgroup. Python must know of a fork in which it `runs_python` on."""
        if not runs_python:
            with contextlib.suppress(OSError):
                return fork_into(self._processes), True
        # Older kernels, and a user of the sandbox's own: what counts then is who opened the file.
        child = os.fork()
        if child:
            try:
                os.write(self._joining, str(child).encode())
            except OSError:
                return child, False
        return child, True

    @property
    def kept(self) -> list[str]:
        """The bounds that it keeps, or counts for."""
        named = {"memory": "memory_bytes", "pids": "processes"}
        return ["cpu_seconds", *(named[each] for each in self._controllers if each in named)]

    @property
    def cpu_seconds(self) -> float:
        """What all processes that were ever in it have used."""
        return self._number(self._cpu, "usage_usec") / 1e6

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process of it for want of memory."""
        return self._memory is not None and self._number(self._memory, "oom_kill") > 0

    def remove(self) -> None:
        """Once nothing runs in it. What this user may no longer remove, the next one to be made removes."""
        _remove(self._parent, self._name)

    @staticmethod
    def _number(file: int, name: str) -> int:
        lines = os.pread(file, 4096, 0).decode().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


def scope_argv(environment: Mapping[str, str]) -> list[str]:
    """What a program is started with to be in a cgroup that systemd delegates, where there is a systemd that lets it
    live as long as the program itself would; else nothing."""
    user = os.geteuid()
    if not os.path.exists(_SYSTEMD):
        return []
    unit = f"{_SCOPE}{os.urandom(8).hex()}"
    run = [
        "systemd-run",
        "--scope",
        f"--unit={unit}",
        "--quiet",
        "--collect",
        "--property=Delegate=yes",
        "--",
    ]
    if user == 0:
        return run
    known = {name: environment[name] for name in BUS if name in environment}
    known.setdefault(BUS[0], f"/run/user/{user}")
    try:
        # The systemd of a user ends with the last login, and all that it started, unless it is to linger.
        lingers = os.path.exists(f"/var/lib/systemd/linger/{pwd.getpwuid(user).pw_name}")
        if not lingers and f"/user@{user}.service/" not in _own_directory("/proc/self"):
            return []
    except (OSError, KeyError):
        return []
    return ["env", *(f"{name}={value}" for name, value in known.items()), run[0], "--user", *run[1:]]


def main() -> None:
    """Started as a program in a scope of systemd: print what is delegated there, or fail with the reason."""
    try:
        print(", ".join(find().controllers))
    except OSError as error:
        sys.exit(error.strerror)


def _own_directory(proc: str) -> str:
    """Where the cgroup of a process is mounted."""
    own = next((line[3:] for line in _lines(os.path.join(proc, "cgroup")) if line.startswith("0::/")), None)
    for line in _lines(os.path.join(proc, "mountinfo")):
        where, _, what = line.partition(" - ")
        if what.split()[0] == "cgroup2" and own is not None:
            root, point = where.split()[3:5]
            below = os.path.relpath(own, root)
            if not below.startswith(".."):
                return os.path.normpath(os.path.join(point, below))
    raise OSError(errno.ENOENT, "no cgroup of version 2 is mounted")


def _is_marked(directory: str) -> bool:
    """Whether systemd has delegated it: it says so where it can, and then there is the scope that we asked for."""
    if os.path.basename(directory).startswith(_SCOPE) and directory.endswith(".scope"):
        return True
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(directory, mark) == b"1":
                return True
    return False


def _sweep(directory: str, parent: int) -> None:
    """Remove what runs have left that could not, or were killed."""
    for name in os.listdir(directory):
        if name.startswith(_RUN) and not os.path.exists(f"/proc/{name.removeprefix(_RUN)}"):
            _remove(parent, name)


def _remove(parent: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(f"{name}/{_PROCESSES}", dir_fd=parent)
        os.rmdir(name, dir_fd=parent)


def _words(path: str) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
