"""What a host does side by side, so that all of it ends with the host and a mistake in one ends that one alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ratchet.observe.logs import logger

_log = logger(__name__)
_RETRY_SECONDS = 1.0
Work = Callable[[], Awaitable[None]]


class Tasks:
    """Tasks of one group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, work: Work) -> asyncio.Task[bool]:
        return self._group.create_task(_is_done(work))

    def keep_doing(self, work: Work) -> asyncio.Task[None]:
        """Begin anew when it goes wrong, until it is done."""
        return self._group.create_task(persistently(work))


async def persistently(work: Work) -> None:
    """Do `work` until it is done or cancelled, however often it goes wrong."""
    while True:
        if await _is_done(work):
            return
        await asyncio.sleep(_RETRY_SECONDS)


async def _is_done(work: Work) -> bool:
    try:
        await work()
    except Exception:  # noqa: BLE001  A mistake of ours: it is logged with its trace, and must not end every agent.
        _log.exception("something went wrong in the host of agents")
        return False
    return True
