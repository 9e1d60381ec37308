"""Holding a session so that it is on record however it ends: answered, failed, or given up by whoever asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ratchet.engines.engine import Engine
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.retrying import propose
from ratchet.engines.session import Request, Session

Write = Callable[[Session, SessionFailed | None], None]
"""Puts an ended session into the ledger; called in a thread."""


async def hold(engine: Engine, request: Request, *, tries: int, write: Write, given_up: str) -> Session:
    """`propose`, and `write` what came of it. A cancelled one is written as a crash with `given_up` as its reason."""
    try:
        session = await propose(engine, request, tries=tries)
    except SessionFailed as failed:
        await asyncio.to_thread(write, failed.session, failed)
        raise
    except asyncio.CancelledError:
        gone = SessionFailed(Failure.CRASHED, given_up, session=Session(engine.name, request.model))
        # Whoever cancels once more need not wait; it is written all the same.
        await asyncio.shield(asyncio.to_thread(write, gone.session, gone))
        raise
    await asyncio.to_thread(write, session, None)
    return session
