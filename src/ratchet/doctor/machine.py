"""Probes of the machine: git and Python, the disk below the home, and the layers of the sandbox."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Literal, cast

from ratchet.kernel import decoded
from ratchet.programs import STDOUT, TookTooLong, end_program, start_program
from ratchet.sandbox import COMMAND_FLOOR, NODE_FLOOR, Layer, Layers, granted
from ratchet.workspaces import LEAST_GIT

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """One finding. `warn`: works without it, but less well. `fix` tells how to put it right."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


Probe = Callable[[], list[ProbeCheck]]


LIMIT_SECONDS = 20.0


def run_all(checks: Iterable[Probe], seconds: float = LIMIT_SECONDS) -> list[ProbeCheck]:
    """The checks of every probe, in the order given. A probe that raises or is late has failed."""
    probes = list(checks)
    answers: SimpleQueue[tuple[int, list[ProbeCheck]]] = SimpleQueue()
    for number, probe in enumerate(probes):
        # Daemons: a probe that hangs must not keep the process from ending.
        Thread(target=_answer, args=(number, probe, answers), daemon=True).start()
    found = _gather(answers, len(probes), time.monotonic() + seconds)
    found_or_late = (found.get(number, [_late(probe, seconds)]) for number, probe in enumerate(probes))
    return [check for checks in found_or_late for check in checks]


def _answer(number: int, probe: Probe, answers: SimpleQueue[tuple[int, list[ProbeCheck]]]) -> None:
    try:
        checks = probe()
    except Exception as error:  # noqa: BLE001  A broken probe is a finding; the others must still be heard.
        checks = [
            ProbeCheck(_name(probe), "fail", f"the check itself failed: {type(error).__name__}: {error}")
        ]
    answers.put((number, checks))


def _gather(
    answers: SimpleQueue[tuple[int, list[ProbeCheck]]], count: int, deadline: float
) -> dict[int, list[ProbeCheck]]:
    found: dict[int, list[ProbeCheck]] = {}
    while len(found) < count:
        try:
            number, checks = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        found[number] = checks
    return found


def _late(probe: Probe, seconds: float) -> ProbeCheck:
    return ProbeCheck(_name(probe), "fail", f"no answer within {seconds:g} s")


def _name(probe: Probe) -> str:
    inner = cast("Probe", probe.func) if isinstance(probe, partial) else probe
    return getattr(inner, "__name__", type(inner).__name__).replace("_", " ")


_NAMESPACES = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns); in a container, allow `unshare` in its seccomp profile"
)
_MEND = {
    "landlock": "use Linux 5.13 or newer with landlock in the kernel parameter lsm=",
    "seccomp filter": "use a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    "own user": "use Linux 5.12 or newer and file systems that can be mounted for another user, and let ordinary users "
    "make user namespaces; or run Ratchet as an ordinary user",
    "cgroup": "run Ratchet as a service of systemd with Delegate=yes, or as a user who lingers (`loginctl "
    "enable-linger`); without it the memory and processes of commands are looked at, and not limited by the kernel",
    "cgroup by systemd": "give the user's systemd the controllers memory and pids (Delegate= of user@.service)",
    "overlayfs": "load the kernel module overlay; without user namespaces it also needs root",
}


def sandbox_layers() -> list[ProbeCheck]:
    """One check for each layer. A missing one is a warning: every record says which layers were on."""
    offered = granted()
    return [
        ProbeCheck(f"sandbox {trial.layer}", "ok", trial.detail)
        if trial.granted
        else ProbeCheck(f"sandbox {trial.layer}", "warn", trial.detail, _MEND.get(trial.layer, _NAMESPACES))
        for trial in offered.trials
    ] + [_runs("nodes", NODE_FLOOR, offered), _runs("commands", COMMAND_FLOOR, offered)]


def _runs(what: str, floor: frozenset[Layer], offered: Layers) -> ProbeCheck:
    """Whether what must be on for nodes or commands is on."""
    missing = [layer for layer in Layer if layer in floor and layer not in offered]
    if missing:
        return ProbeCheck(
            f"sandbox {what}", "warn", f"refused for want of {', '.join(missing)}", "fix what is missing"
        )
    return ProbeCheck(f"sandbox {what}", "ok", "run with every layer that they must have")


MIB = 1024**2
GIB = 1024**3


def disk(home: Path, *, warn_below: int = GIB, fail_below: int = 100 * MIB) -> list[ProbeCheck]:
    """Free space at `home`, and a file written, synced and removed there."""
    place = next(each for each in (home.absolute(), *home.absolute().parents) if each.is_dir())
    return [_space(place, warn_below, fail_below), _writable(place)]


def _space(place: Path, warn_below: int, fail_below: int) -> ProbeCheck:
    free = shutil.disk_usage(place).free
    detail = f"{_size(free)} free at {place}"
    if free < fail_below:
        return ProbeCheck("disk space", "fail", f"{detail}, less than {_size(fail_below)}", "free some space")
    if free < warn_below:
        return ProbeCheck("disk space", "warn", f"{detail}, less than {_size(warn_below)}", "free some space")
    return ProbeCheck("disk space", "ok", detail)


def _writable(place: Path) -> ProbeCheck:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"ratchet")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fix = "make the directory writable for this user, or set RATCHET_HOME to one that is"
        return ProbeCheck("disk writes", "fail", f"{place} cannot be written: {error.strerror}", fix)
    return ProbeCheck("disk writes", "ok", f"{place} takes writes, and fsync works")


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


_MOST_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """What a program said. `code` is `None` when it was killed for taking too long or saying too much."""

    code: int | None
    output: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.output.splitlines() if line.strip()), "")


def ask(*command: str, seconds: float = 5.0) -> ProbeAnswer:
    """Run `command` without input and return what it said.

    One that does not end in time is killed with its process group. Raises `OSError` when it cannot start.
    """
    process = start_program(command, complaints=STDOUT)
    deadline = time.monotonic() + seconds
    assert process.stdout is not None
    with process.stdout as pipe:
        output, ended = _read(pipe, deadline)
        try:
            code = process.wait(max(0.0, deadline - time.monotonic())) if ended else None
        except TookTooLong:
            code = None
        if code is None:
            end_program(process)
    return ProbeAnswer(code, decoded(output))


def _read(pipe: IO[bytes], deadline: float) -> tuple[bytes, bool]:
    """What comes until the end, the deadline or the limit, and whether it was the end."""
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(output) < _MOST_BYTES and (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                chunk = os.read(pipe.fileno(), 8192)
                if not chunk:
                    return output, True
                output += chunk
    return output, False


LEAST_PYTHON = (3, 11)


def git(path: str | None = None) -> list[ProbeCheck]:
    """Git on `path` (by default the PATH), new enough."""
    least = ".".join(map(str, LEAST_GIT))
    fix = f"install git {least} or newer with the package manager of your system"
    program = shutil.which("git", path=path)
    if program is None:
        return [ProbeCheck("git", "fail", "not found on the PATH", fix)]
    try:
        said = ask(program, "--version").first_line
    except OSError as error:
        return [ProbeCheck("git", "fail", f"{program} cannot be run: {error.strerror}", fix)]
    found = re.search(r"(\d+)\.(\d+)\S*", said)
    if found is None:
        return [ProbeCheck("git", "fail", f"{program} does not print its version: {said!r}", fix)]
    if (int(found[1]), int(found[2])) < LEAST_GIT:
        return [ProbeCheck("git", "fail", f"{found[0]} at {program} is older than {least}", fix)]
    return [ProbeCheck("git", "ok", f"{found[0]} at {program}")]


def python() -> list[ProbeCheck]:
    """The interpreter that runs this."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < LEAST_PYTHON:
        return [ProbeCheck("python", "fail", f"{version} is too old", "install Python 3.11 or newer")]
    return [ProbeCheck("python", "ok", f"{version} at {sys.executable}")]
