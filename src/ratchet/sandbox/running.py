"""A command while it runs."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ratchet.sandbox.bounds import Bounds
from ratchet.sandbox.errors import Broken, CannotStart
from ratchet.sandbox.exchange import Exchange
from ratchet.sandbox.finished import Finished, Stopped
from ratchet.sandbox.layers import try_layers
from ratchet.sandbox.nursery import held_file, nursery
from ratchet.sandbox.plan import spec_of
from ratchet.sandbox.policy import Policy
from ratchet.sandbox.wiring import new_wiring

LONGEST_LINE = 16 * 1024 * 1024
_TAIL_BYTES = 16 * 1024
# The sandbox keeps the time itself; this is for when it cannot.
BACKSTOP_SECONDS = 30.0


class Running:
    """Iterate over it for the lines of stdout, as they come; `wait` for its end. What was not iterated over is in
    `Finished.stdout`. A line above `LONGEST_LINE` stops the run."""

    def __init__(self, exchange: Exchange, bounds: Bounds, layers: Sequence[str]) -> None:
        self._exchange = exchange
        self._bounds = bounds
        self._layers = tuple(map(str, layers))
        self._news = asyncio.Event()
        exchange.on_change = self._news.set

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
        return finished(report, self._exchange, self._layers)

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
) -> AsyncIterator[Running]:
    """Run a command inside the block; leaving it, however that happens, kills the whole tree.

    With `hear`, which must not raise, every piece of its stdout and stderr is handed to that as it comes: nothing is
    held here, and the bound on output does not apply. A run that floods it is slowed down. `overhear`, which must not
    raise either, is only told each piece of its stderr; everything is held and bounded as without it.

    Raises `Refused` if the machine lacks a layer of the policy's floor.
    """
    bounds, policy = bounds or Bounds(), policy or Policy()
    await try_layers()
    spec = spec_of(argv, cwd, bounds, policy)
    exchange = await _begin(spec.to_json().encode(), stdin, bounds, hear, overhear)
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
    overhear: Callable[[bytes], None] | None,
) -> Exchange:
    wiring = await new_wiring(with_input=True)
    try:
        with held_file(description) as file:
            await nursery().start_command([file, *wiring.theirs])
    except BaseException:
        wiring.close()
        raise
    wiring.let_go()
    return Exchange(wiring, stdin or b"", most_bytes=bounds.output_bytes, hear=hear, overhear=overhear)


def finished(report: dict[str, Any] | None, exchange: Exchange, layers: tuple[str, ...]) -> Finished:
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
        layers=layers,
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
