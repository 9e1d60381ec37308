"""A session from its first hook to its last one, with its tools in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ratchet.engines import Tool
from ratchet.research.sessions.hearing import Hearing
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools import tools_for


@asynccontextmanager
async def attended(
    sitting: Sitting, *, engine: str, with_tools: bool = True
) -> AsyncIterator[tuple[Tool, ...]]:
    """The tools of a session, which is held inside the block by the task that enters it.

    For an engine that takes none they need not be made: then `with_tools` is false.

    When it is left, what the session handed in has been measured; a cancellation from outside cuts also that short.
    Raises `SessionFailed` when a hook broke, and what `Sitting.submit` raised if the model could not mend it.
    """
    hearing = Hearing(sitting, engine)
    tools = tuple(map(hearing.watched, tools_for(sitting))) if with_tools else ()
    try:
        await hearing.started()
        async with _measured(sitting), _breakable(sitting):
            yield tools
        if sitting.broken is not None:
            raise sitting.broken
    except asyncio.CancelledError:
        # It counts for more than what a hook has to say about it.
        with contextlib.suppress(Exception):
            await hearing.ended("it was cancelled")
        raise
    except Exception as error:
        await hearing.ended(str(error))
        raise
    await hearing.ended(None)


@asynccontextmanager
async def _measured(sitting: Sitting) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        await sitting.settled(cancel=True)
        raise
    except Exception:
        await sitting.settled()
        raise
    await sitting.settled()


@asynccontextmanager
async def _breakable(sitting: Sitting) -> AsyncIterator[None]:
    """Cancels the block when the session is broken off, and raises the reason for that."""
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    sitting.on_break = task.cancel
    try:
        yield
        if sitting.broken is not None:
            # It had ended in that very moment: let the cancellation arrive here and not later.
            await asyncio.sleep(0)
    except BaseException as error:
        if sitting.broken is None:
            raise
        from_outside = task.uncancel() > asked_before
        if from_outside and isinstance(error, asyncio.CancelledError):
            raise
    finally:
        sitting.on_break = None
    if sitting.broken is not None:
        raise sitting.broken
