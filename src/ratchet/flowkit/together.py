"""Doing things side by side, and stopping all of them when one goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def side_by_side() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises what went wrong first, as it was raised, and not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as raised:
        raise raised.exceptions[0] from None
