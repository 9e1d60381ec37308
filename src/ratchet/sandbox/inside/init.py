"""The first process of a sandbox: puts the view together, starts the command, reaps, and ends everything.

When it ends, the kernel kills whatever is left in its pid namespace; it dies with the launcher, its parent.
"""

# pathlib is slow to import.
# ruff: noqa: PTH101, PTH123

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import stat
import time
from typing import NoReturn

from . import names, view
from .linux import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_PDEATHSIG, drop_capabilities, prctl
from .rights import give_up_for_command, most_tasks
from .spec import CommandSpec
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
        os.execvpe(spec.argv[0], spec.argv, spec.environment or {})
    except OSError as error:
        os.write(trouble, f"{spec.argv[0]} cannot be run: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(_NOT_RUN)


STOP = signal.SIGUSR1
# The kernel's own word for a signal by `kill`. What a process puts into a queue itself cannot have it.
_BY_KILL = 0
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST_LOOKS, _FIRST_SECONDS = 0.01, 0.1
# Without bounds on memory and CPU a late look costs nobody anything.
_EASY_LOOKS = 0.1
# The kernel takes no smaller one.
_LEAST_PID_MAX = 301


def attend(spec: CommandSpec, report: int, life: int) -> NoReturn:
    """Be the first process. `report` takes one JSON object; `life` is closed once the launcher is gone."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([life], [], [], 0)[0]:
            os._exit(1)
        answer = _attend(spec)
    except OSError as error:
        answer = {"refused": error.strerror or str(error)}
    except BaseException as error:  # noqa: BLE001 - a fork must never return to the code above it
        answer = {"refused": f"{type(error).__name__}: {error}"}
    try:
        os.write(report, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _attend(spec: CommandSpec) -> dict[str, object]:
    _prepare(spec)
    # Kept for `sigtimedwait`. The command starts with none of them blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, STOP, *FORWARDED})
    # Before it starts: on a busy machine the command may run for a while before this process does again.
    began = time.monotonic()
    child, counter = _start(spec)
    watch = TreeWatch(
        memory_bytes=spec.memory_bytes,
        processes=spec.processes,
        cpu_seconds=spec.cpu_seconds,
        scratch=view.SCRATCH if names.MOUNT in spec.layers else (),
        shared=names.IPC in spec.layers and names.MOUNT in spec.layers,
        sockets=names.NETWORK in spec.layers and names.MOUNT in spec.layers,
        counter=counter,
    )
    disk = None if spec.disk_bytes is None else DiskWatch(spec.view.writable, spec.disk_bytes)
    status, stopped = _follow(spec, child, began, watch, disk)
    ended = time.monotonic()
    _end_all(spec)
    if stopped:
        ended = time.monotonic()
    if spec.nested or names.SECCOMP not in spec.layers:
        for top in spec.view.writable:
            _take_back_lent(top)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "status": status,
        "stopped": stopped,
        "wall_ms": (ended - began) * 1000,
        "cpu_ms": max(used.ru_utime + used.ru_stime, watch.seen_seconds) * 1000,
        "peak_bytes": max(watch.peak_bytes, used.ru_maxrss * 1024),
        "counted": counter is not None,
    }


def _prepare(spec: CommandSpec) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if names.MOUNT in spec.layers:
        view.build(spec.view)
        with contextlib.suppress(OSError):
            # Since Linux 6.14 each pid namespace has its own. RLIMIT_NPROC does not count what root starts.
            _write("/proc/sys/kernel/pid_max", str(max(most_tasks(spec.processes), _LEAST_PID_MAX)))
        view.guard_kernel_settings()
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        raise OSError(error.errno, f"the sandbox has no directory {spec.cwd}: {error.strerror}") from None
    with contextlib.suppress(OSError):
        # When the machine runs out of memory, let it be this tree that goes.
        _write("/proc/self/oom_score_adj", "500")


def _start(spec: CommandSpec) -> tuple[int, int | None]:
    """The command's process, and the counter of its CPU time if that is bounded and can be counted."""
    hear, tell = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(wait, 1)
        become(spec, tell)
    counter = None if spec.cpu_seconds is None else count_cpu(child)
    os.close(tell)
    os.close(wait)
    os.close(go)
    # From here on this process holds nothing that the command could want, and cannot be traced by it.
    prctl(PR_SET_DUMPABLE, 0)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    if names.CAPABILITIES in spec.layers:
        drop_capabilities()
    with os.fdopen(hear, "rb") as file:
        trouble = file.read()
    if trouble:
        raise OSError(0, trouble.decode(errors="replace"))
    return child, counter


def _follow(
    spec: CommandSpec, child: int, began: float, watch: TreeWatch, disk: DiskWatch | None
) -> tuple[int | None, str | None]:
    """Wait for the command: how it ended, or why it must be ended."""
    deadline = began + spec.wall_seconds
    next_look = began + _FIRST_LOOKS
    easy = spec.memory_bytes is None and spec.cpu_seconds is None
    later = max(spec.look_seconds, _EASY_LOOKS) if easy else spec.look_seconds
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
            next_look = time.monotonic() + (_FIRST_LOOKS if now - began < _FIRST_SECONDS else later)


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
