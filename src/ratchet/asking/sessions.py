"""One session: asked, listened to, written down and kept before anything else is done."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.asking.asker import Asker, Room
from ratchet.engines import Failure, Request, Session, SessionFailed
from ratchet.engines.listening import listener_for
from ratchet.engines.record import record_session
from ratchet.engines.retrying import propose
from ratchet.kernel import StepStatus
from ratchet.runtime.attempts import OpenAttempt

ANSWERED = "answered"
# Longer than any answer that could be used.
_LONGEST_ANSWER = 1_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """`role` is what the session is written down as, and `about` what is kept with its answer.

    An engine that knows no schemas is told it in the prompt. With `reads_text`, what an engine said counts as an answer
    although it is not in the form that was asked for: whoever checks it knows how to read it.
    """

    role: str
    system: str
    prompt: str
    schema: Mapping[str, Any]
    reads_text: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


async def hold_session(asker: Asker, opened: OpenAttempt, question: Question) -> None:
    """Ask, and checkpoint the answer under `ANSWERED`. Raises `SessionFailed`, with the session written down."""
    listener = listener_for(opened.job, opened.spender, asker.engine.name, asker.model)
    settings = asker.job.runtime.settings.engines
    structured = asker.engine.capabilities.structured_output
    try:
        async with _seated(asker) as room:
            with listener.listening():
                request = Request(
                    prompt=question.prompt,
                    system=question.system,
                    workspace=None if room is None else room.workspace,
                    environment={} if room is None else room.environment,
                    readable=() if room is None else room.readable,
                    model=asker.model,
                    output_schema=question.schema if structured else None,
                    limits=opened.limits,
                    deadline_seconds=min(
                        settings.deadline_seconds, asker.deadline_seconds or settings.deadline_seconds
                    ),
                    listen=listener.hear,
                )
                session = _bounded(await propose(asker.engine, request, tries=settings.tries))
    except SessionFailed as failed:
        session = failed.session
        if not (question.reads_text and _is_text(failed)):
            with listener.settled(opened.job, session.usage) as tx:
                record_session(
                    tx,
                    opened.artifacts,
                    session,
                    question.role,
                    opened.spender,
                    failed,
                    prompt=question.prompt,
                )
            raise
    asker.passed("session ended")
    with listener.settled(opened.job, session.usage) as tx:
        number = record_session(
            tx, opened.artifacts, session, question.role, opened.spender, prompt=question.prompt
        )
        answer = {
            "session": number,
            "text": session.text,
            "output": session.output,
            "simulated": session.simulated,
            "about": dict(question.about),
        }
        opened.finish(tx, ANSWERED, answer)
        opened.move_step(tx, StepStatus.NEEDS_QA)
    asker.passed("session kept")


def _is_text(failed: SessionFailed) -> bool:
    """Whether a session said something that only is not in the form that was asked for."""
    said = failed.session.text
    return failed.failure is Failure.BAD_OUTPUT and len(said.strip()) > 0 and len(said) <= _LONGEST_ANSWER


def _bounded(session: Session) -> Session:
    if len(session.text) > _LONGEST_ANSWER:
        raise SessionFailed(
            Failure.BAD_OUTPUT,
            f"the answer has {len(session.text):,} characters, and at most {_LONGEST_ANSWER:,} are read",
            session=session,
        )
    return session


@contextlib.asynccontextmanager
async def _seated(asker: Asker) -> AsyncIterator[Room | None]:
    """A room for an engine that works in one."""
    if not asker.engine.capabilities.edits_files:
        yield None
        return
    async with asker.room() as room:
        yield room
