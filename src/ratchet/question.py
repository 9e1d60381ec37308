"""Asking an engine for an answer that can be used: held, recorded, checkpointed, and sent back when it is bad."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ratchet.engines import Engine, Failure, Request, Session, SessionFailed
from ratchet.engines.run import Keeping, run_session
from ratchet.engines.transcript import account_of, write_now
from ratchet.files import discard
from ratchet.flowkit.jsontext import decoder
from ratchet.kernel import LedgerError, Outcome, RatchetError, StepStatus, Superseded, with_hint
from ratchet.ledger import Transaction
from ratchet.runtime import JobContext
from ratchet.runtime.attempts import OpenAttempt, ended_attempt, take_attempt


class NoAnswer(RatchetError):
    """There is no answer that can be used. `step` is where it failed, `problems` what was wrong at last.

    `teaches` says that the answer itself was bad, and not, say, the key of the model. It `is_permanent` when every
    further session would fail so, until a person changes something.
    """

    http_status = 502

    def __init__(
        self, step: str, problems: Sequence[str], sessions: int, *, teaches: bool, is_permanent: bool = False
    ) -> None:
        told = "; ".join(problems)
        tries = f"after {sessions} sessions" if sessions > 1 else "in its only session"
        super().__init__(f"{step} failed {tries}: {told}")
        self.step = step
        self.problems = tuple(problems)
        self.teaches = teaches
        self.is_permanent = is_permanent


@dataclass(frozen=True, slots=True)
class Room:
    """Where an engine that works with files sits. What it leaves there is no part of its answer."""

    workspace: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()


@contextlib.asynccontextmanager
async def empty_room() -> AsyncIterator[Room]:
    with tempfile.TemporaryDirectory(prefix="ratchet-asked-") as directory:
        workspace = Path(directory) / "workspace"
        workspace.mkdir()
        try:
            yield Room(workspace)
        finally:
            discard(workspace)


@dataclass(frozen=True, slots=True)
class QuestionAsker:
    """`repairs` is how often a bad answer is sent back, and `passed` is told how far it has come."""

    job: JobContext
    engine: Engine
    repairs: int
    model: str | None = None
    deadline_seconds: float | None = None
    room: Callable[[], AbstractAsyncContextManager[Room]] = empty_room
    passed: Callable[[str], None] = lambda _: None


ANSWERED = "answered"
# Longer than any answer that could be used.
_LONGEST_ANSWER = 1_000_000


@dataclass(frozen=True, slots=True)
class EngineQuestion:
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


async def hold_session(asker: QuestionAsker, opened: OpenAttempt, question: EngineQuestion) -> None:
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
async def _request(
    asker: QuestionAsker, opened: OpenAttempt, question: EngineQuestion
) -> AsyncIterator[Request]:
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
            # It is sent back here, with everything that is wrong with it: twice would be every time as often.
            repairs=0,
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


_OPENING = re.compile(r'\{\s*"')
_MOST_FAULTS = 100


def find_object(text: str, key: str) -> dict[str, Any]:
    """The last object in `text` that has `key`. Raises `ValueError` with what is wrong when there is none."""
    read = decoder(strict=False).raw_decode
    found: dict[str, Any] | None = None
    faults: list[str] = []
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < end or len(faults) == _MOST_FAULTS:
            continue
        try:
            value, end = read(text, opening.start())
        except RecursionError:
            faults.append("it is nested too deeply")
        except ValueError as error:
            faults.append(str(error))
        else:
            found = value if key in value else found
    if found is not None:
        return found
    if faults:
        raise ValueError(f"the JSON of the answer is broken: {faults[0][:200]}")
    raise ValueError(f"the answer has no JSON object with {key} in it: {text.strip()[:200] or 'nothing'!r}")


# What is told of a bad answer; the transcript has all of it.
_SHOWN = 20_000
_MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What a session said. `output` is there if the engine knows schemas; `about` is what was kept with it."""

    session: int
    text: str
    output: Any
    simulated: bool
    about: Mapping[str, Any]


class BadAnswer(Exception):
    """An answer that cannot be used, with one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems[:_MOST_PROBLEMS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What one try came to: a value, or problems and the answer that has them.

    It `is_hopeless` to ask again after a failure that lies elsewhere than in the answer. One that `is_permanent` does
    not count any more once the run was resumed: a person has changed something.
    """

    value: Any = None
    problems: tuple[str, ...] = ()
    answer: str = ""
    is_hopeless: bool = False
    is_permanent: bool = False

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Self:
        """What was recorded of a try that has ended."""
        return cls(**{**result, "problems": tuple(result["problems"])})


@dataclass(frozen=True, slots=True)
class Good:
    """A value that can be used, and what was wrong with those before it."""

    value: Any
    repaired: tuple[str, ...]


Ask = Callable[[Tried | None], Awaitable[EngineQuestion]]
"""What to ask, given the try before that was no good."""
Check = Callable[[OpenAttempt, EngineAnswer], Awaitable[Any]]
"""The value of an answer, as JSON. Raises `BadAnswer`."""


async def try_until_good(
    asker: QuestionAsker, step: str, ask: Ask, check: Check, *, first: int = 1, before: Tried | None = None
) -> Good:
    """The first answer that can be used. Raises `NoAnswer` when there is none within the repairs that are allowed.

    `first` is the number of the first attempt that counts, when others have come to nothing long ago; `before` is a bad
    answer of those.
    """
    bad: list[Tried] = []
    numbers = itertools.count(first)
    while len(bad) <= asker.repairs:
        nth = next(numbers)
        if _was_permanent(asker, step, nth):
            continue
        tried = await _try(asker, step, nth, ask, check, bad[-1] if bad else before)
        if not tried.problems:
            return Good(tried.value, tuple(problem for each in bad for problem in each.problems))
        bad.append(tried)
        if tried.is_hopeless:
            break
    last = bad[-1]
    raise NoAnswer(
        step, last.problems, len(bad), teaches=not last.is_hopeless, is_permanent=last.is_permanent
    )


def _was_permanent(asker: QuestionAsker, step: str, nth: int) -> bool:
    """Whether that try failed before the run was resumed, for a reason that a person was to change."""
    ended = ended_attempt(asker.job, step, nth)
    return ended is not None and bool(ended.get("is_permanent"))


async def _try(
    asker: QuestionAsker, step: str, nth: int, ask: Ask, check: Check, before: Tried | None
) -> Tried:
    """One session and what comes of it; one that ended before is only remembered."""
    opened = take_attempt(asker.job, step, nth=nth, spec={"engine": asker.engine.name})
    if not isinstance(opened, OpenAttempt):
        return Tried.of(opened)
    try:
        if ANSWERED not in opened.finished:
            await hold_session(asker, opened, await ask(before))
        answer = EngineAnswer(**opened.finished[ANSWERED])
        if answer.simulated and not opened.run.simulated:
            reason = "a recording answers nothing in a run that is no simulation"
            return _end(opened, Outcome.ERROR, Tried(problems=(reason,), is_hopeless=True))
        value = await check(opened, answer)
        return _end(opened, Outcome.PASSED, Tried(value=value))
    except BadAnswer as bad:
        return _end(opened, Outcome.FAILED, Tried(problems=bad.problems, answer=_answer_text(opened)))
    except SessionFailed as failed:
        tried = Tried(
            problems=(with_hint(failed),),
            is_hopeless=failed.failure is not Failure.BAD_OUTPUT,
            is_permanent=failed.failure.is_permanent,
        )
        return _end(opened, Outcome.ERROR, tried)
    except (Superseded, LedgerError):
        raise
    except Exception as error:
        _end(opened, Outcome.ERROR, Tried(problems=(f"{type(error).__name__}: {error}",)))
        raise


def _end(opened: OpenAttempt, outcome: Outcome, tried: Tried) -> Tried:
    step = StepStatus.COMPLETED if outcome is Outcome.PASSED else StepStatus.FAILED
    reason = "; ".join(tried.problems) or "the answer can be used"
    with opened.job.write() as tx:
        opened.end(tx, outcome, reason, asdict(tried), step=step)
    return tried


def _answer_text(opened: OpenAttempt) -> str:
    return str(opened.finished[ANSWERED]["text"])[:_SHOWN]
