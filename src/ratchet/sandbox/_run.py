"""Running a command or a node: to its end, or as a process that the caller talks to."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal as signals
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ratchet.kernel import Misuse, decoded, last_line
from ratchet.sandbox.inside import rlimits
from ratchet.sandbox.inside.node import Work
from ratchet.sandbox.inside.nodes import ORDER
from ratchet.sandbox.nursery import (
    NodeKind,
    Overhearing,
    SandboxExchange,
    held_file,
    new_wiring,
    nursery,
)
from ratchet.sandbox.policy import (
    Bounds,
    Broken,
    CannotStart,
    Finished,
    Node,
    Policy,
    Stopped,
    Warm,
    command_bounds,
    existing,
    hidden,
    node_bounds,
    node_layers,
    placed,
    scope,
    spec_of,
    try_layers,
)

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.launch import main; main()"


def wrapped(
    argv: Sequence[str],
    *,
    cwd: Path,
    policy: Policy,
    bounds: Bounds | None = None,
    begun: Path | None = None,
) -> list[str]:
    """The same run as an argv; arguments added at its end are the command's.

    Any user can read an argv, so it only names the variables of `policy.environment`: whoever starts it must give it
    their values. It ends as the command ends, with 125 if that could not be run, and by SIGKILL if it was stopped.
    The bytes of its output are not bounded, and it dies with the thread that starts it. What it runs under is written
    to the file `begun`, which it must not be able to write itself, for `surroundings`.
    """
    rlimits.keep_room()
    spec = spec_of(argv, cwd, bounds or Bounds(), policy)
    named = spec._replace(argv=[], environment=None, variables=sorted(policy.environment))
    inside, told = str(Path(__file__).parent), "" if begun is None else str(begun)
    return [*scope(), sys.executable, "-I", "-S", "-c", _START, inside, named.to_json(), told, *argv]


def surroundings(begun: Path, bounds: Bounds) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The layers that are on for a `wrapped` run, and for each bound that was set what keeps it. Nothing of either if
    it has not begun."""
    try:
        told = json.loads(begun.read_bytes())
    except (OSError, ValueError):
        return (), {}
    layers = tuple(told["layers"])
    kept = command_bounds(bounds, layers, counted=told["counted"], grouped=told["grouped"])
    return layers, {name: by for name, by in kept.items() if name != "output_bytes"}


LONGEST_LINE = 16 * 1024 * 1024
_TAIL_BYTES = 16 * 1024
# The sandbox keeps the time itself; this is for when it cannot.
BACKSTOP_SECONDS = 30.0


class Running:
    """Iterate over it for the lines of stdout, as they come; `wait` for its end. What was not iterated over is in
    `Finished.stdout`. A line above `LONGEST_LINE` stops the run."""

    def __init__(self, exchange: SandboxExchange, bounds: Bounds, layers: Sequence[str]) -> None:
        self._exchange = exchange
        self._bounds = bounds
        self._layers = tuple(map(str, layers))
        self._news = asyncio.Event()
        exchange.on_change = self._news.set

    @property
    def stdout_tail(self) -> bytes:
        """The end of what it has written to stdout so far and was not iterated over."""
        return bytes(self._exchange.stdout.held[-_TAIL_BYTES:])

    @property
    def stderr_tail(self) -> bytes:
        """The end of what it has written to stderr so far."""
        return bytes(self._exchange.stderr.held[-_TAIL_BYTES:])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = self._exchange.stdout.held
        searched = 0
        while True:
            self._news.clear()
            while (end := held.find(b"\n", searched)) >= 0:
                line = bytes(held[: end + 1])
                del held[: end + 1]
                searched = 0
                yield line
            searched = len(held)
            if searched > LONGEST_LINE:
                self._exchange.stop(Stopped.OUTPUT)
            if self._exchange.ended.is_set():
                break
            await self._news.wait()
        if held:
            line = bytes(held)
            held.clear()
            yield line

    async def wait(self) -> Finished:
        """Its end. Raises `CannotStart` or `Broken` if there was no proper run."""
        report = await self._exchange.report(self._bounds.wall_seconds + BACKSTOP_SECONDS)
        end = finished(report, self._exchange, self._layers)
        assert report is not None, "without one it has not ended"
        counted, grouped = report["counted"], report["grouped"]
        return replace(
            end, bounded_by=command_bounds(self._bounds, self._layers, counted=counted, grouped=grouped)
        )

    def stop(self) -> None:
        """End it now; `wait` tells what it had used."""
        self._exchange.stop(Stopped.CANCELLED)


@asynccontextmanager
async def start(
    argv: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes | None = None,
    bounds: Bounds | None = None,
    policy: Policy | None = None,
    hear: Callable[[bytes], None] | None = None,
    overhear: Callable[[bytes], None] | None = None,
    overhear_answer: Callable[[bytes], Awaitable[None] | None] | None = None,
    warm: Warm | None = None,
) -> AsyncIterator[Running]:
    """Run a command inside the block; leaving it, however that happens, kills the whole tree.

    With `hear`, which must not raise, every piece of its stdout and stderr is handed to that as it comes: nothing is
    held here, and the bound on output does not apply. A run that floods it is slowed down. `overhear` and
    `overhear_answer`, which must not raise either, are only told each piece of its stderr and of its stdout; everything
    is held and bounded as without them. What `overhear_answer` returns is waited for before more of stdout is read, and
    does not count as time of the run. With `warm` a function is called in the place of a program.

    Raises `IsolationRefused` if the machine lacks a layer of the policy's floor.
    """
    bounds, policy = bounds or Bounds(), policy or Policy()
    await try_layers()
    overhearing = Overhearing(overhear, overhear_answer)
    bounds, seconds = _clock(bounds, overhearing)
    spec = spec_of(argv, cwd, bounds, policy, warm)
    exchange = await _begin(spec.to_json().encode(), stdin, bounds, hear, overhearing, seconds, warm)
    running = Running(exchange, bounds, spec.layers)
    try:
        yield running
    finally:
        await exchange.leave()


async def _begin(
    description: bytes,
    stdin: bytes | None,
    bounds: Bounds,
    hear: Callable[[bytes], None] | None,
    overhearing: Overhearing,
    seconds: float | None,
    warm: Warm | None,
) -> SandboxExchange:
    wiring = await new_wiring(with_input=True)
    try:
        with held_file(description) as file:
            await nursery().start_command([file, *wiring.theirs], warm)
    except BaseException:
        wiring.close()
        raise
    wiring.let_go()
    return SandboxExchange(
        wiring,
        stdin or b"",
        most_bytes=bounds.output_bytes,
        hear=hear,
        overhearing=overhearing,
        seconds=seconds,
    )


_WAITING_SECONDS = 7 * 86_400.0


def _clock(bounds: Bounds, overhearing: Overhearing) -> tuple[Bounds, float | None]:
    """The bounds for the sandbox, and the seconds to be counted here: only here is it known how long a run waits for
    the reader of its stdout."""
    if overhearing.stdout is None:
        return bounds, None
    return replace(bounds, wall_seconds=bounds.wall_seconds + _WAITING_SECONDS), bounds.wall_seconds


def finished(report: dict[str, Any] | None, exchange: SandboxExchange, layers: tuple[str, ...]) -> Finished:
    if report is None:
        raise Broken(
            "a process of the sandbox was killed, so nothing is known of this run", hint="try it again"
        )
    if "refused" in report:
        raise CannotStart(report["refused"])
    stopped = exchange.stopped or (Stopped(report["stopped"]) if report["stopped"] else None)
    if report["status"] is not None and stopped is not Stopped.OUTPUT:
        stopped = None  # it ended by itself before it was told to
    code = None if stopped else os.waitstatus_to_exitcode(report["status"])
    return Finished(
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stopped=stopped,
        stdout=bytes(exchange.stdout.held),
        stderr=bytes(exchange.stderr.held),
        wall_ms=report["wall_ms"],
        cpu_ms=report["cpu_ms"],
        peak_bytes=report["peak_bytes"],
        layers=tuple(report.get("layers", layers)),
        problem=_problem(code, stopped),
    )


def _problem(code: int | None, stopped: Stopped | None) -> str | None:
    if stopped is not None:
        return f"stopped: {stopped}"
    if code is not None and code < 0:
        # Signals of real time have numbers, and no names.
        names = {number.value: number.name for number in signals.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}" if code else None


# Most nodes have ended by then.
_PATIENCE_SECONDS = 0.02


async def run(
    work: Sequence[str] | Node,
    *,
    cwd: Path | None = None,
    stdin: bytes = b"",
    bounds: Bounds | None = None,
    policy: Policy | None = None,
    overhear: Callable[[bytes], None] | None = None,
    overhear_answer: Callable[[bytes], Awaitable[None] | None] | None = None,
) -> Finished:
    """Run a command, or a node with JSON on stdin, to its end. Cancelling kills it.

    `overhear` and `overhear_answer`, which must not raise, are told each piece of its stderr and of its stdout as it
    comes, within the bound on output. What `overhear_answer` returns is waited for before more of stdout is read, and
    does not count as time of the run.

    Raises `IsolationRefused` if a layer of the policy's floor is missing, `CannotStart` if there is no such program or
    directory, `Broken` if the sandbox itself was killed. Everything else is told by what is returned.
    """
    bounds, policy = bounds or Bounds(), policy or Policy()
    if isinstance(work, Node):
        return await _run_node(work, stdin, bounds, policy, Overhearing(overhear, overhear_answer))
    if cwd is None:
        raise Misuse("a command needs a directory to run in")
    async with start(
        work,
        cwd=cwd,
        stdin=stdin,
        bounds=bounds,
        policy=policy,
        overhear=overhear,
        overhear_answer=overhear_answer,
    ) as running:
        return await running.wait()


async def _run_node(
    node: Node, given: bytes, bounds: Bounds, policy: Policy, overhearing: Overhearing
) -> Finished:
    await try_layers()
    bounds, seconds = _clock(bounds, overhearing)
    layers = node_layers(policy, scratch=node.scratch)
    readable, places = existing(policy.readable), placed(policy.places)
    kept_from = hidden(policy, (*readable, *(source for _, source in places)))
    work = Work(
        source=node.code(),
        given=given,
        name=_plain(node.name),
        function=_plain(node.function),
        spread=node.spread,
        scratch=node.scratch,
        readable=readable,
        places=places,
        environment={_plain(name): _plain(value) for name, value in policy.environment.items()},
        cpu_seconds=None if bounds.cpu_seconds is None else float(bounds.cpu_seconds),
        memory_bytes=None if bounds.memory_bytes is None else int(bounds.memory_bytes),
        file_bytes=None if bounds.file_bytes is None else int(bounds.file_bytes),
        cpus=tuple(map(int, bounds.cpus)),
    )
    wiring = await new_wiring(with_input=False)
    try:
        with held_file(work.packed()) as file:
            order = ORDER.pack(bounds.wall_seconds, bounds.memory_bytes or math.inf)
            kind = NodeKind(layers, node.modules, kept_from)
            parent = await nursery().start_node(order, [file, *wiring.theirs], kind)
    except BaseException:
        wiring.close()
        raise
    wiring.let_go()
    exchange = SandboxExchange(
        wiring,
        b"",
        most_bytes=bounds.output_bytes,
        overhearing=overhearing,
        patience_seconds=0.0 if any(overhearing) else _PATIENCE_SECONDS,
        seconds=seconds,
    )
    try:
        report = await exchange.report(bounds.wall_seconds + BACKSTOP_SECONDS)
    finally:
        await exchange.leave()
    if report is None:
        raise _died(parent.last_words(), node.modules)
    end = replace(finished(report, exchange, layers), bounded_by=node_bounds(bounds))
    return _checked(end, bounds)


# A string itself, also of a member of an enumeration: what a node is told is of Python's own types only.
_plain = str.__str__


def _died(words: str, modules: tuple[str, ...]) -> Broken:
    if words:
        return Broken(
            f"the parent of nodes could not start: {words}", hint=f"check the modules {', '.join(modules)}"
        )
    return Broken("the parent of nodes was killed, so nothing is known of this run", hint="try it again")


def _checked(end: Finished, bounds: Bounds) -> Finished:
    """A node succeeds only by returning JSON; ending well without it is not success."""
    # For its limit the kernel counts ticks, which on a busy machine come to more than the usage that it tells.
    if end.signal == 9 and bounds.cpu_seconds is not None and end.cpu_ms >= bounds.cpu_seconds * 500:
        return replace(end, signal=None, stopped=Stopped.CPU, problem="stopped: cpu")
    if end.exit_code == 0:
        try:
            _strict.decode(end.stdout.decode(json.detect_encoding(end.stdout), "surrogatepass"))
        except (ValueError, RecursionError) as error:
            return replace(end, problem=f"ended without a JSON result: {error}")
    elif end.exit_code == 1:
        return replace(end, problem=last_line(decoded(end.stderr))[:500] or "failed, and printed no reason")
    return end


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_strict = json.JSONDecoder(parse_constant=_refuse)
