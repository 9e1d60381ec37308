"""One session: its question, and its answer as a checkpoint before anything else is done."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.asking.asker import Asker
from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.run import Keeping, run_session
from ratchet.engines.transcript import account_of, write_now
from ratchet.kernel import StepStatus
from ratchet.ledger import Transaction
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
    """Ask, and checkpoint the answer under `ANSWERED`. Raises `SessionFailed`, with the session recorded."""
    engine = _ReadsText(asker.engine) if question.reads_text else asker.engine

    async def take(session: Session) -> None:
        _check_length(session)
        asker.passed("session ended")

    def record(tx: Transaction, number: int, session: Session, _: None) -> None:
        answer = {
            "session": number,
            "text": session.text,
            "output": session.output,
            "simulated": session.simulated,
            "about": dict(question.about),
        }
        opened.finish(tx, ANSWERED, answer)
        opened.move_step(tx, StepStatus.NEEDS_QA)

    await run_session(
        account_of(opened.job, opened.spender, engine.name, asker.model),
        write_now(opened.job),
        engine,
        _request(asker, opened, question),
        Keeping(role=question.role, tries=asker.job.runtime.settings.engines.tries),
        take=take,
        record=record,
    )
    asker.passed("session kept")


@contextlib.asynccontextmanager
async def _request(asker: Asker, opened: OpenAttempt, question: Question) -> AsyncIterator[Request]:
    """What the engine is asked, in a room if it works in one."""
    most = asker.job.runtime.settings.engines.deadline_seconds
    async with contextlib.AsyncExitStack() as stack:
        room = None
        if asker.engine.capabilities.edits_files:
            room = await stack.enter_async_context(asker.room())
        yield Request(
            prompt=question.prompt,
            system=question.system,
            workspace=None if room is None else room.workspace,
            environment={} if room is None else room.environment,
            readable=() if room is None else room.readable,
            model=asker.model,
            output_schema=question.schema if asker.engine.capabilities.structured_output else None,
            limits=opened.limits,
            deadline_seconds=min(most, asker.deadline_seconds or most),
        )


class _ReadsText:
    """An engine whose answer counts although it is not in the form that was asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.name
        self.capabilities = engine.capabilities
        self.check = engine.check

    async def propose(self, request: Request) -> Session:
        try:
            return await self._engine.propose(request)
        except SessionFailed as failed:
            if not _is_text(failed):
                raise
            return failed.session


def _is_text(failed: SessionFailed) -> bool:
    """Whether a session said something that only is not in the form that was asked for."""
    said = failed.session.text
    return failed.failure is Failure.BAD_OUTPUT and len(said.strip()) > 0 and len(said) <= _LONGEST_ANSWER


def _check_length(session: Session) -> None:
    if len(session.text) > _LONGEST_ANSWER:
        raise SessionFailed(
            Failure.BAD_OUTPUT,
            f"the answer has {len(session.text):,} characters, and at most {_LONGEST_ANSWER:,} are read",
            session=session,
        )
