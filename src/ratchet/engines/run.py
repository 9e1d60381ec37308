"""Running a session: listened to, retried, and recorded however it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from ratchet.engines.engine import Engine
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.listening import Account, Listener, Writer
from ratchet.engines.record import record_session
from ratchet.engines.retrying import propose
from ratchet.engines.session import Request, Session, SessionEvent
from ratchet.kernel import Usage
from ratchet.ledger import Transaction

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What is kept of a session, and when.

    `role` is what it is recorded as. Its events are written while it runs unless it is not `live`. With `given_up`, a
    session that is cancelled is recorded too, as a crash with that reason; without it, the next process runs another.
    """

    role: str
    tries: int
    prompt: bool = True
    prompt_file: str | None = None
    transcript: bool = True
    live: bool = True
    given_up: str | None = None


def nothing_else(_tx: Transaction, _failed: SessionFailed) -> None:
    """Nothing more is recorded of a session that failed."""


async def run_session(
    account: Account,
    write: Writer,
    engine: Engine,
    requested: AbstractAsyncContextManager[Request],
    keeping: Keeping,
    *,
    take: Callable[[Session], Awaitable[T]],
    record: Callable[[Transaction, int, Session, T], R],
    failed: Callable[[Transaction, SessionFailed], None] = nothing_else,
    also_used: Callable[[], Usage] = Usage,
) -> R:
    """Run one session and record it. What `record` returns; raises `SessionFailed`, with the session recorded.

    The request holds as long as the engine works. `take` is given what the engine left, and may raise `SessionFailed`
    for what cannot be used. Then one transaction charges the usage (with what was `also_used`), records the session
    under its number, and does what `record` or `failed` does.
    """
    listener, prompt = Listener(account), ""
    try:
        async with requested as request:
            prompt = request.prompt
            heard = replace(request, listen=_both(listener.hear, request.listen))
            with listener.listening() if keeping.live else contextlib.nullcontext():
                session = await propose(engine, heard, tries=keeping.tries)
        taken = await take(session)
    except SessionFailed as error:
        await _record_failure(account, write, keeping, listener, prompt, error, failed, also_used())
        raise
    except asyncio.CancelledError:
        if keeping.given_up is not None:
            nothing = Session(engine.name, account.model)
            gone = SessionFailed(Failure.CRASHED, keeping.given_up, session=nothing)
            writing = _record_failure(account, write, keeping, listener, prompt, gone, failed, also_used())
            # Cancelled once more, it is written all the same.
            await asyncio.shield(writing)
        raise

    listener.learn(None, session.model)

    def ended(tx: Transaction) -> R:
        number = _record(tx, account, keeping, session, prompt, None)
        return record(tx, number, session, taken)

    return await listener.record(write, session.usage + also_used(), ended)


@contextlib.asynccontextmanager
async def plain(request: Request) -> AsyncIterator[Request]:
    """A request that needs nothing around it."""
    yield request


async def _record_failure(
    account: Account,
    write: Writer,
    keeping: Keeping,
    listener: Listener,
    prompt: str,
    error: SessionFailed,
    failed: Callable[[Transaction, SessionFailed], None],
    also_used: Usage,
) -> None:
    error.session = replace(error.session, usage=error.session.usage.largest(listener.used))
    listener.learn(None, error.session.model)

    def ended(tx: Transaction) -> None:
        _record(tx, account, keeping, error.session, prompt, error)
        failed(tx, error)

    await listener.record(write, error.session.usage + also_used, ended)


def _record(
    tx: Transaction,
    account: Account,
    keeping: Keeping,
    session: Session,
    prompt: str,
    failed: SessionFailed | None,
) -> int:
    return record_session(
        tx,
        account.ledger.artifacts,
        session if keeping.transcript else replace(session, transcript=b""),
        keeping.role,
        account.spender,
        failed,
        prompt=prompt if keeping.prompt and prompt else None,
        prompt_file=keeping.prompt_file,
    )


def _both(
    one: Callable[[SessionEvent], None], other: Callable[[SessionEvent], None]
) -> Callable[[SessionEvent], None]:
    def listen(event: SessionEvent) -> None:
        one(event)
        other(event)

    return listen
