"""Steps that wait take no core: others are let in while those inside do not compute."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from ratchet.workflows.runs.caller import Cores, computing_below
from tests.waiting import eventually, eventually_async

BUSY = "while True: pass"
IDLE = "import sys; sys.stdin.read()"


async def most_inside(cores: Cores, steps: int, settled: Callable[[int], bool]) -> int:
    """How many of so many steps are inside at once, once that many are that it is `settled`; then all may end."""
    inside, highest, leave = 0, 0, asyncio.Event()

    async def step() -> None:
        nonlocal inside, highest
        async with cores:
            inside += 1
            highest = max(highest, inside)
            if settled(inside):
                leave.set()
            await leave.wait()
            inside -= 1

    await asyncio.gather(*(step() for _ in range(steps)))
    return highest


@pytest.mark.parametrize("steps", [3, 40])
def test_all_steps_that_only_wait_are_inside_at_once(steps: int) -> None:
    assert asyncio.run(most_inside(Cores(1, 256, lambda: 0), steps, lambda inside: inside == steps)) == steps


def test_no_more_are_inside_than_may_wait_at_all() -> None:
    assert asyncio.run(most_inside(Cores(1, 5, lambda: 0), 12, lambda inside: inside == 5)) == 5


@pytest.mark.parametrize("busy", [2, None])
def test_steps_that_compute_share_the_cores(busy: int | None) -> None:
    """So they do where it cannot be known whether they compute."""
    looks = 0

    def look() -> int | None:
        nonlocal looks
        looks += 1
        return busy

    async def tried() -> int:
        cores, inside = Cores(2, 256, look), 0

        async def step() -> None:
            nonlocal inside
            async with cores:
                inside += 1
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(step()) for _ in range(6)]
        await eventually_async(lambda: looks >= (10 if busy else 1))
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return inside

    assert asyncio.run(tried()) == 2


def test_places_beyond_the_cores_are_given_up_again() -> None:
    async def tried() -> int:
        cores = Cores(1, 256, lambda: 0)
        await most_inside(cores, 20, lambda inside: inside == 20)
        cores._computing = lambda: 1
        return await most_inside(cores, 1, lambda inside: inside == 1) + int(cores.locked())

    assert asyncio.run(tried()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize(("program", "computes"), [(BUSY, True), (IDLE, False)])
def test_a_process_computes_while_it_runs_or_would_like_to(program: str, computes: bool) -> None:
    """Also one that is started by a process that is started by this one."""
    before = computing_below()
    assert before is not None
    shell = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    started = subprocess.Popen([sys.executable, "-c", shell], stdin=subprocess.PIPE, start_new_session=True)
    with started:
        try:
            # Both are busy while they start.
            eventually(lambda: ((computing_below() or 0) > before) == computes)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
