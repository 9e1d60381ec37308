"""One call of a step until it succeeds or has failed: time limit, retries with growing pauses, the fallback tool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

from .errors import StepFailed
from .execution import Call, Caller, Journal, Result, StepError

# A caller that keeps the limit itself tells more of what it stopped; this is for one that does not.
_GRACE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


Room = Callable[[Call], AbstractAsyncContextManager[object]]
"""Waits until there is room for a call, and gives it back when the block ends."""


async def call_until_done(
    call: Call, caller: Caller, journal: Journal, room: Room, *, guarded: bool
) -> Result | StepError:
    """What the step came to. Room is taken only while something is called, not in the pauses."""
    step = call.step
    tries = 1 + (step.max_retries if step.retry_on_failure else 0)
    own_tool = call.tool
    for number in range(1, tries + 2):
        call = replace(call, number=number)
        try:
            async with room(call):
                await journal.started(call)
                began = time.monotonic()
                async with _limited(step.timeout) if guarded else nullcontext():
                    result = await caller.call(call)
        except StepFailed as failed:
            error = StepError(str(failed), number, failed.metrics, failed.hint)
            fallback = caller.fallback(call) if call.tool == own_tool else None
            if number < tries and not failed.final:
                pause = min(_LONGEST_PAUSE_SECONDS, step.backoff_seconds * 2 ** (number - 1))
            elif fallback is not None and fallback != own_tool:
                pause, tries, call = 0.0, number + 1, replace(call, tool=fallback)
            else:
                return error
            await journal.retrying(call, error, pause)
            await asyncio.sleep(pause)
            continue
        if "wall_ms" not in result.metrics:
            took = {"wall_ms": (time.monotonic() - began) * 1000}
            result = replace(result, metrics={**result.metrics, **took})
        return replace(result, tries=number)
    raise AssertionError("the last try returns")


@asynccontextmanager
async def _limited(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            yield
    except TimeoutError as error:
        raise StepFailed(f"took longer than {seconds:g} s") from error
