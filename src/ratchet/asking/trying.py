"""Asking until an answer can be used: a bad one is sent back with all that is wrong with it, a few times at most."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from ratchet.asking.asker import Asker
from ratchet.asking.refusal import NoAnswer
from ratchet.asking.sessions import ANSWERED, Question, hold_session
from ratchet.engines import Failure, SessionFailed
from ratchet.kernel import LedgerError, Outcome, StepStatus, Superseded, with_hint
from ratchet.runtime.attempts import OpenAttempt, ended_attempt, take_attempt

# What is told of a bad answer; the transcript has all of it.
_SHOWN = 20_000
_MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Answer:
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


Ask = Callable[[Tried | None], Awaitable[Question]]
"""What to ask, given the try before that was no good."""
Check = Callable[[OpenAttempt, Answer], Awaitable[Any]]
"""The value of an answer, as JSON. Raises `BadAnswer`."""


async def try_until_good(
    asker: Asker, step: str, ask: Ask, check: Check, *, first: int = 1, before: Tried | None = None
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


def _was_permanent(asker: Asker, step: str, nth: int) -> bool:
    """Whether that try failed before the run was resumed, for a reason that a person was to change."""
    ended = ended_attempt(asker.job, step, nth)
    return ended is not None and bool(ended.get("is_permanent"))


async def _try(asker: Asker, step: str, nth: int, ask: Ask, check: Check, before: Tried | None) -> Tried:
    """One session and what comes of it; one that ended before is only remembered."""
    opened = take_attempt(asker.job, step, nth=nth, spec={"engine": asker.engine.name})
    if not isinstance(opened, OpenAttempt):
        return Tried.of(opened)
    try:
        if ANSWERED not in opened.finished:
            await hold_session(asker, opened, await ask(before))
        answer = Answer(**opened.finished[ANSWERED])
        if answer.simulated and not opened.run.simulated:
            reason = "a recording answers nothing in a run that is no simulation"
            return _end(opened, Outcome.ERROR, Tried(problems=(reason,), is_hopeless=True))
        value = await check(opened, answer)
        return _end(opened, Outcome.PASSED, Tried(value=value))
    except BadAnswer as bad:
        return _end(opened, Outcome.FAILED, Tried(problems=bad.problems, answer=_told(opened)))
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


def _told(opened: OpenAttempt) -> str:
    return str(opened.finished[ANSWERED]["text"])[:_SHOWN]
