"""Running the program of an agent: confined, within its deadline and its budget, and heard line by line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.session import Request
from ratchet.kernel import RatchetError, Usage
from ratchet.sandbox import (
    Bounds,
    Broken,
    CannotStart,
    Finished,
    Policy,
    Refused,
    Running,
    Stopped,
    run,
    start,
)

# An agent runs compilers and test suites; the limits here only stop what runs wild.
_PROCESSES = 4096
_OUTPUT = 64 * 1024 * 1024
_LINES = 100_000
_AT_ONCE = 100
_LOOK_SECONDS = 0.25
# The sandbox ends what is left when this process could not.
_GRACE_SECONDS = 30.0

_CUT_SHORT = {
    Stopped.WALL: (Failure.TIMEOUT, "it ran for longer than its deadline"),
    Stopped.OUTPUT: (Failure.BAD_OUTPUT, f"it printed more than {_OUTPUT // 1024**2} MiB"),
    Stopped.PROCESSES: (Failure.CRASHED, f"it started more than {_PROCESSES} processes"),
    Stopped.MEMORY: (Failure.CRASHED, "it used more memory than there is"),
    Stopped.CPU: (Failure.CRASHED, "it used more CPU time than it may"),
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a program is called, and what of the machine it may touch.

    It sees everything but what is `hidden` and the contents of /tmp, of which only `readable` and `writable` are there,
    and writes only the latter. `argv` begins with an absolute path.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    stdin: bytes = b""
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    network: bool = True

    @property
    def policy(self) -> Policy:
        return Policy(
            see_everything=True,
            network=self.network,
            readable=(Path(self.argv[0]).resolve().parent, *self.readable),
            writable=self.writable,
            hidden=self.hidden,
            places=self.places,
            read_only=tuple(path / ".git" for path in self.writable if (path / ".git").exists()),
            environment=self.environment,
        )


async def supervise(
    invocation: Invocation,
    request: Request,
    *,
    hear: Callable[[bytes], None],
    look: Callable[[], Fault | None],
) -> Finished:
    """Run it to its end, handing each line of its output to `hear`. A fault that `look` finds meanwhile ends it.

    Raises that `Fault`, or one of its own when the deadline or the sandbox ends it. Nothing of it runs afterwards.
    """
    seconds = seconds_for(request)
    overrun: list[Fault] = []
    try:
        async with asyncio.timeout(seconds) as limit, _started(invocation, seconds) as running:
            watching = asyncio.create_task(_watch(look, limit, overrun))
            try:
                await _hear_all(running, hear)
                finished = await running.wait()
            finally:
                watching.cancel()
    except TimeoutError:
        raise (overrun or [out_of_time(request)])[0] from None
    except (Refused, CannotStart, Broken) as error:
        raise _not_run(error) from None
    if finished.stopped is not None:
        failure, why = _CUT_SHORT.get(
            finished.stopped, (Failure.CRASHED, finished.problem or "by the sandbox")
        )
        raise Fault(failure, f"the session was ended: {why}", hint="its transcript tells what it was doing")
    return finished


async def try_out(invocation: Invocation, seconds: float) -> Finished:
    """Run something short, such as a question for the version. Raises `Fault` if it cannot be started."""
    bounds = Bounds(wall_seconds=seconds, memory_bytes=None, processes=_PROCESSES)
    try:
        return await run(invocation.argv, cwd=invocation.cwd, bounds=bounds, policy=invocation.policy)
    except (Refused, CannotStart, Broken) as error:
        raise _not_run(error) from None


def check_budget(request: Request, usage: Usage) -> Fault | None:
    """What is to be raised when `usage` is over what the request allows."""
    over = request.limits.exceeded_by(usage)
    if over is None:
        return None
    measure, used, limit = over
    return Fault(
        Failure.BUDGET,
        f"the session used {used:g} of {limit:g} {measure} that it was given",
        hint="raise the budget, or ask for less in one session",
    )


def could_not_write(error: OSError) -> Fault:
    """What is to be raised when the files of a session cannot be written or read."""
    return Fault(
        Failure.CRASHED,
        f"the files of the session cannot be used: {error}",
        hint="free some space and check the rights of Ratchet's home, then try again",
    )


def _not_run(error: RatchetError) -> Fault:
    failure = Failure.CRASHED if isinstance(error, Broken) else Failure.MISSING
    return Fault(failure, str(error), hint=error.hint or "`ratchet doctor` tells what works on this machine")


def _started(invocation: Invocation, seconds: float) -> AbstractAsyncContextManager[Running]:
    bounds = Bounds(
        wall_seconds=seconds + _GRACE_SECONDS,
        memory_bytes=None,
        processes=_PROCESSES,
        output_bytes=_OUTPUT,
        file_bytes=None,
    )
    return start(
        invocation.argv, cwd=invocation.cwd, stdin=invocation.stdin, bounds=bounds, policy=invocation.policy
    )


async def _hear_all(running: Running, hear: Callable[[bytes], None]) -> None:
    number = 0
    async for line in running:
        hear(line)
        number += 1
        if number > _LINES:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"the session was ended: it printed more than {_LINES} lines",
                hint="its transcript tells what it was doing",
            )
        if number % _AT_ONCE == 0:
            # A flood must not keep this process from everything else.
            await asyncio.sleep(0)


async def _watch(look: Callable[[], Fault | None], limit: asyncio.Timeout, overrun: list[Fault]) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if fault := look():
            overrun.append(fault)
            limit.reschedule(asyncio.get_running_loop().time())
            return


def seconds_for(request: Request) -> float:
    """How long a session may take: its deadline, or the wall time of its budget if that is shorter."""
    allowed = request.limits.wall_seconds
    return request.deadline_seconds if allowed is None else min(request.deadline_seconds, allowed)


def out_of_time(request: Request) -> Fault:
    """What is to be raised when that time is over."""
    seconds = seconds_for(request)
    if seconds < request.deadline_seconds:
        return Fault(
            Failure.BUDGET,
            f"the session used up the {seconds:g} seconds of wall time that it was given",
            hint="raise the budget, or ask for less in one session",
        )
    return Fault(
        Failure.TIMEOUT,
        f"the session did not end within {seconds:g} seconds",
        hint="raise engines.deadline_seconds, or ask for less in one session",
    )
