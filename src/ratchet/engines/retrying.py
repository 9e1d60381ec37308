"""Trying a session again, where that makes sense.

Only a session in which the model certainly did nothing is repeated: the endpoint asked to come back later, or the
connection broke before an answer. All tries together stay within the deadline and the budget of the request.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

from ratchet.engines.engine import Engine
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.session import EventKind, Request, Session, SessionEvent
from ratchet.engines.transcript import Transcript
from ratchet.kernel import RatchetError, Usage

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
        found.failure, found.detail, session=failed.session, hint=found.mend, worked=failed.worked
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
            told = {each.name: event.data.get(each.name, 0) for each in fields(Usage)}
            event = replace(event, data={"engine": engine, **event.data, **asdict(spent + Usage(**told))})
        listen(event)

    return hear


def _with_earlier(session: Session, spent: Usage, said: bytes) -> Session:
    return replace(session, usage=spent + session.usage, transcript=said + session.transcript)


def _tell(request: Request, failed: SessionFailed, number: int, pause: float) -> bytes:
    transcript = Transcript(request)
    data = {"failure": failed.failure, "try": number, "seconds": round(pause, 3), "reason": str(failed)}
    transcript.say(EventKind.RETRY, f"try {number} failed, and is repeated in {pause:.1f} s: {failed}", data)
    return transcript.content
