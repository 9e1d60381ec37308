"""The first process of a sandbox: puts the view together, starts the command, reaps, and ends everything.

When it ends, the kernel kills whatever is left in its pid namespace; it dies with the launcher, its parent.
"""

# pathlib is slow to import.
# ruff: noqa: PTH101, PTH123

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import re
import resource
import select
import signal
import stat
import sys
import time
import traceback
from typing import NoReturn, TextIO, cast

from . import names, view
from .cgroup import RunGroup
from .linux import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    drop_capabilities,
    keep_tracing,
    prctl,
)
from .rights import give_up_for_command
from .spec import CommandSpec, most_tasks
from .tree import Piece
from .watch import DiskWatch, TreeWatch, count_cpu, descendants, everyone, files_below

_NOT_RUN = 127


def become(spec: CommandSpec, trouble: int) -> NoReturn:
    """Give up every right, then run the program. What stops it goes to `trouble`, which running the program closes."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Python ignores some, and so does whoever was started with nohup: a program would inherit that.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        trouble = os.dup2(trouble, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        give_up_for_command(spec)
        if spec.entry:
            # As running a program would close it.
            os.close(trouble)
            _call(spec)
        os.execvpe(spec.argv[0], spec.argv, spec.environment or {})
    except OSError as error:
        os.write(trouble, f"{spec.argv[0]} cannot be run: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(_NOT_RUN)


def _call(spec: CommandSpec) -> NoReturn:
    """Call the function in the place of a program, and end as a program in Python ends."""
    code = 1
    try:
        # As Python has them at its start.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(spec.environment or {})
        gc.enable()
        # The parent saw other directories by the same names.
        sys.path_importer_cache.clear()
        sys.stdin = _stream(0, "r")
        sys.stdout = _stream(1, "w")
        sys.stderr = _stream(2, "w")
        module, _, name = spec.entry.rpartition(".")
        getattr(sys.modules[module], name)(list(spec.argv))
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    except BaseException:  # noqa: BLE001 - told on stderr; a fork must never return to the code above it
        traceback.print_exc()
    try:
        if (threads := sys.modules.get("threading")) is not None:
            threads._shutdown()
        atexit._run_exitfuncs()
    finally:
        os._exit(code)


def _stream(number: int, mode: str) -> TextIO:
    """The parent's own remember what was there before."""
    opened = open(  # noqa: SIM115 - the stream of the process, until it ends
        number, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    return cast(TextIO, opened)


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


STOP = signal.SIGUSR1
# The kernel's own word for a signal by `kill`. What a process puts into a queue itself cannot have it.
_BY_KILL = 0
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST_LOOKS, _FIRST_SECONDS = 0.01, 0.1
# Without bounds on memory and CPU a late look costs nobody anything.
_EASY_LOOKS = 0.1
# The kernel takes no smaller one.
_LEAST_PID_MAX = 301
# Of each kind, for the sandboxes that a command makes inside its own.
_MOST_NAMESPACES = 256


def attend(
    spec: CommandSpec,
    pieces: list[Piece] | None,
    report: int,
    life: int,
    group: RunGroup | None,
    begun: int | None,
) -> NoReturn:
    """Be the first process, which sees `pieces` of the machine if they were cloned already. `report` takes one JSON
    object; `life` is closed once the launcher is gone. The command is to be in `group` if there is one.
    What it runs under is told to `begun`, a file, as soon as it runs."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([life], [], [], 0)[0]:
            os._exit(1)
        answer = _attend(spec, pieces, group, begun)
    except OSError as error:
        answer = {"refused": error.strerror or str(error)}
    except BaseException as error:  # noqa: BLE001 - a fork must never return to the code above it
        answer = {"refused": f"{type(error).__name__}: {error}"}
    try:
        os.write(report, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _attend(
    spec: CommandSpec, pieces: list[Piece] | None, group: RunGroup | None, begun: int | None
) -> dict[str, object]:
    _prepare(spec, pieces)
    # Kept for `sigtimedwait`. The command starts with none of them blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, STOP, *FORWARDED})
    # Before it starts: on a busy machine the command may run for a while before this process does again.
    began = time.monotonic()
    child, group, counter = _start(spec, group)
    surroundings = {
        "counted": counter is not None,
        "grouped": [] if group is None else group.kept,
        "layers": [*spec.layers, *([] if group is None else [names.CGROUP])],
    }
    if begun is not None:
        os.write(begun, json.dumps(surroundings).encode())
    watch = TreeWatch(
        memory_bytes=spec.memory_bytes,
        processes=spec.processes,
        cpu_seconds=spec.cpu_seconds,
        scratch=view.SCRATCH if names.MOUNT in spec.layers else (),
        shared=names.IPC in spec.layers and names.MOUNT in spec.layers,
        sockets=names.NETWORK in spec.layers and names.MOUNT in spec.layers,
        counter=counter,
        group=group,
    )
    disk = None if spec.disk_bytes is None else DiskWatch(spec.view.writable, spec.disk_bytes)
    status, stopped = _follow(spec, child, began, watch, disk)
    if status is not None and os.WIFSIGNALED(status) and group is not None and group.out_of_memory:
        status, stopped = None, "memory"
    ended = time.monotonic()
    _end_all(spec)
    if stopped:
        ended = time.monotonic()
    if spec.nested or names.SECCOMP not in spec.layers:
        for top in spec.view.writable:
            _take_back_lent(top)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return surroundings | {
        "status": status,
        "stopped": stopped,
        "wall_ms": (ended - began) * 1000,
        "cpu_ms": max(used.ru_utime + used.ru_stime, watch.seen_seconds) * 1000,
        "peak_bytes": max(watch.peak_bytes, used.ru_maxrss * 1024),
    }


def _prepare(spec: CommandSpec, pieces: list[Piece] | None) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if names.MOUNT in spec.layers:
        view.build(spec.view, pieces)
        if has_own_pid_max(os.uname().release):
            with contextlib.suppress(OSError):
                # RLIMIT_NPROC does not count what root starts.
                _write("/proc/sys/kernel/pid_max", str(max(most_tasks(spec.processes), _LEAST_PID_MAX)))
        if names.USER in spec.layers:
            _share_with_others()
        view.guard_kernel_settings()
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        raise OSError(error.errno, f"the sandbox has no directory {spec.cwd}: {error.strerror}") from None
    with contextlib.suppress(OSError):
        # When the machine runs out of memory, let it be this tree that goes.
        _write("/proc/self/oom_score_adj", "500")


def has_own_pid_max(release: str) -> bool:
    """Whether each pid namespace has a `pid_max` of its own in this version of Linux: elsewhere it is the machine's."""
    numbers = re.findall(r"\d+", release)[:2]
    return tuple(map(int, numbers)) >= (6, 14)


def _share_with_others() -> None:
    """Leave most of what its user may watch files with, and of the kernel's memory for namespaces, to others. Each user
    namespace can have limits of its own."""
    for kind, part in (("instances", 8), ("watches", 4)):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/sys/fs/inotify/max_user_{kind}") as file:
            _write(f"/proc/sys/user/max_inotify_{kind}", str(max(int(file.read()) // part, 1)))
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"):
        with contextlib.suppress(OSError):
            _write(f"/proc/sys/user/max_{kind}_namespaces", str(_MOST_NAMESPACES))


def _start(spec: CommandSpec, group: RunGroup | None) -> tuple[int, RunGroup | None, int | None]:
    """The command's process, the cgroup that it is in, and the counter of its CPU time if that is bounded, can be
    counted, and is not counted by the cgroup."""
    hear, tell = os.pipe()
    wait, go = os.pipe()
    child, joined = (os.fork(), False) if group is None else group.fork(runs_python=bool(spec.entry))
    if child == 0:
        os.close(go)
        os.read(wait, 1)
        become(spec, tell)
    group = group if joined else None
    counter = None if spec.cpu_seconds is None or joined else count_cpu(child)
    os.close(tell)
    os.close(wait)
    os.close(go)
    # From here on this process holds nothing that the command could want, and cannot be traced by it.
    prctl(PR_SET_DUMPABLE, 0)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    if names.CAPABILITIES in spec.layers:
        (keep_tracing if names.USER in spec.layers else drop_capabilities)()
    with os.fdopen(hear, "rb") as file:
        trouble = file.read()
    if trouble:
        raise OSError(0, trouble.decode(errors="replace"))
    return child, group, counter


def _follow(
    spec: CommandSpec, child: int, began: float, watch: TreeWatch, disk: DiskWatch | None
) -> tuple[int | None, str | None]:
    """Wait for the command: how it ended, or why it must be ended."""
    deadline = began + spec.wall_seconds
    next_look = began + _FIRST_LOOKS
    easy = spec.memory_bytes is None and spec.cpu_seconds is None
    later = max(spec.look_seconds, _EASY_LOOKS) if easy else spec.look_seconds
    pause = later
    while True:
        wait = max(0.0, min(deadline, next_look) - time.monotonic())
        woken = signal.sigtimedwait({signal.SIGCHLD, STOP, *FORWARDED}, wait)
        if woken is not None and woken.si_signo != signal.SIGCHLD and _is_from_launcher(woken, spec):
            if woken.si_signo == STOP:
                return None, "cancelled"
            os.kill(child, woken.si_signo)
        status = _reap(child)
        if status is not None:
            return status, None
        now = time.monotonic()
        if now >= deadline:
            return None, "wall"
        if now >= next_look:
            passed = watch.look(_living(spec)) or (disk and disk.look())
            if passed:
                return None, passed
            pause = max(later, min(2 * pause, spec.idle_look_seconds)) if watch.is_quiet else later
            next_look = time.monotonic() + (_FIRST_LOOKS if now - began < _FIRST_SECONDS else pause)


def _is_from_launcher(woken: signal.struct_siginfo, spec: CommandSpec) -> bool:
    """The command can signal this process where landlock does not keep it from that, but not as one from outside."""
    sender = 0 if names.PID in spec.layers else os.getppid()
    return woken.si_code == _BY_KILL and woken.si_pid == sender


def _reap(child: int) -> int | None:
    """Collect every process that has ended; the status of `child` if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def _living(spec: CommandSpec) -> list[int]:
    return everyone() if names.PID in spec.layers else descendants(os.getpid())


def _end_all(spec: CommandSpec) -> None:
    """Kill and collect every process that is left, so that its usage is counted."""
    while True:
        # Everyone in a pid namespace but its first process; without one, whoever can be found.
        for pid in [-1] if names.PID in spec.layers else descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _take_back_lent(top: str) -> None:
    """Leave no program that has its owner's or group's rights, whoever runs it. No process is left that could make one.

    Only for a command that could: a filter refuses it to others, but cannot read the mode of `openat2`, which sandboxes
    of its own need.
    """
    for each in files_below(top, lambda _error: None):
        with contextlib.suppress(OSError):
            mode = each.stat(follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                os.chmod(each.path, stat.S_IMODE(mode) & 0o777)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
