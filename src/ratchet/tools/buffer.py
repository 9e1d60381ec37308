"""Gathering values over calls until there are enough of them to continue with."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from ratchet.ledger.tools import add_to_buffer, count_buffered, flush_buffer
from ratchet.tools.call import Occasion

_MOST = 10_000


async def buffer(
    name: str,
    value: Any = None,
    action: Literal["write", "flush", "status"] = "write",
    max_size: int = 100,
    max_seconds: float | None = None,
    *,
    occasion: Occasion,
) -> dict[str, Any]:
    """Gather values under a name. The write that makes it full, or finds its oldest value too old, gets all of them.

    The values are in the ledger, so they survive every process. A step that is done again after a crash writes again.
    """
    if not 1 <= max_size <= _MOST:
        raise ValueError(f"max_size must be from 1 to {_MOST}, not {max_size}")
    return await asyncio.to_thread(_act, occasion, name, value, action, max_size, max_seconds)


def _act(
    occasion: Occasion, name: str, value: Any, action: str, max_size: int, max_seconds: float | None
) -> dict[str, Any]:
    with occasion.runtime.ledger.write(actor=occasion.actor) as tx:
        if action == "status":
            return {"count": count_buffered(tx, name)}
        if action == "flush":
            flushed = flush_buffer(tx, name)
            return {"count": 0, "flushed": list(flushed)}
        done = add_to_buffer(tx, name, value, most=max_size, seconds=max_seconds)
        return {"count": done.count} if done.flushed is None else {"count": 0, "flushed": list(done.flushed)}
