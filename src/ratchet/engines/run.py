"""Run a session: streamed to the ledger, retried where that makes sense, and recorded however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, replace
from typing import TypeVar

from ratchet.engines.engine import (
    Engine,
    EventKind,
    Failure,
    Request,
    Session,
    SessionEvent,
    SessionFailed,
    Transcript,
)
from ratchet.engines.transcript import Account, SessionListener, SessionWriter, record_session
from ratchet.kernel import RatchetError, Usage, exhausted
from ratchet.ledger import Transaction

_LOOK_SECONDS = 20.0
_REPEATABLE = (Failure.RATE_LIMITED, Failure.CRASHED)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double, with a random part so that many sessions do not come back at once."""

    base_seconds: float = 1.0
    cap_seconds: float = 60.0

    def pause(self, failed_tries: int, asked: float | None) -> float:
        """How long to wait after so many failed tries; never less than the endpoint `asked` for."""
        longest: float = min(self.cap_seconds, self.base_seconds * 2 ** min(failed_tries - 1, 30))
        if asked is not None:
            return asked + random.uniform(0, min(longest, self.base_seconds))
        return random.uniform(longest / 2, longest)


async def propose(engine: Engine, request: Request, *, tries: int, backoff: Backoff | None = None) -> Session:
    """`engine.propose`, up to `tries` times. The usage and the transcripts of all tries are in what comes of it."""
    backoff = backoff or Backoff()
    ends = time.monotonic() + request.deadline_seconds
    spent, said = Usage(), b""
    for number in range(1, tries + 1):
        began = time.monotonic()
        try:
            session = await _try(engine, _what_is_left(engine, request, spent, ends - began))
        except SessionFailed as failed:
            failed = await _looked_into(engine, failed) if number == 1 else failed
            failed.session = _with_earlier(failed.session, spent, said)
            pause = backoff.pause(number, failed.retry_after)
            spent, said = failed.session.usage, failed.session.transcript
            left = ends - time.monotonic()
            if number == tries or not _may_repeat(failed, request, spent) or pause >= left:
                raise failed from None
            said += _tell(request, failed, number, pause)
            await asyncio.sleep(pause)
            spent += Usage(wall_ms=round(pause * 1000))
        else:
            return _with_earlier(session, spent, said)
    raise ValueError(f"a session needs at least one try, not {tries}")


async def _try(engine: Engine, request: Request) -> Session:
    """One try. An engine that breaks down in a way of its own has crashed, and may have worked."""
    try:
        return await engine.propose(request)
    except RatchetError:
        raise
    except Exception as error:
        if exhausted(error) is not None:
            raise
        raise SessionFailed(
            Failure.CRASHED,
            f"the engine {engine.name} broke down: {type(error).__name__}: {error}",
            session=Session(engine.name),
        ) from error


async def _looked_into(engine: Engine, failed: SessionFailed) -> SessionFailed:
    """A session that broke says little: if every other one would fail too, the engine says why."""
    if failed.failure is not Failure.CRASHED:
        return failed
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            found = await engine.check()
    except Exception:  # noqa: BLE001 - what the session said is the reason, then
        return failed
    if found.ready or not found.failure.is_permanent:
        return failed
    return SessionFailed(
        found.failure, found.detail, session=failed.session, hint=found.fix, worked=failed.worked
    )


def _may_repeat(failed: SessionFailed, request: Request, spent: Usage) -> bool:
    return failed.failure in _REPEATABLE and not failed.worked and request.limits.reached_by(spent) is None


def _what_is_left(engine: Engine, request: Request, spent: Usage, seconds: float) -> Request:
    return replace(
        request,
        deadline_seconds=seconds,
        limits=request.limits.less(spent),
        listen=_counting_on(request.listen, engine.name, spent),
    )


def _counting_on(
    listen: Callable[[SessionEvent], None], engine: str, spent: Usage
) -> Callable[[SessionEvent], None]:
    """Usage events tell what the session used so far, so those of a later try must begin where the earlier ended.

    They say of which engine it is: one that hears of a judge's sessions cannot know.
    """

    def hear(event: SessionEvent) -> None:
        if event.kind is EventKind.USAGE:
            reported = {each.name: event.data.get(each.name, 0) for each in fields(Usage)}
            event = replace(event, data={"engine": engine, **event.data, **asdict(spent + Usage(**reported))})
        listen(event)

    return hear


def _with_earlier(session: Session, spent: Usage, said: bytes) -> Session:
    return replace(session, usage=spent + session.usage, transcript=said + session.transcript)


def _tell(request: Request, failed: SessionFailed, number: int, pause: float) -> bytes:
    transcript = Transcript(request)
    data = {"failure": failed.failure, "try": number, "seconds": round(pause, 3), "reason": str(failed)}
    transcript.say(EventKind.RETRY, f"try {number} failed, and is repeated in {pause:.1f} s: {failed}", data)
    return transcript.content


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
    write: SessionWriter,
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
    listener, prompt = SessionListener(account), ""
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
    write: SessionWriter,
    keeping: Keeping,
    listener: SessionListener,
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
