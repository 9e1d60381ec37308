"""The result of one measurement, or why there is none: the status of the trial, and the reason in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from ratchet.judges.evaluator import (
    Disqualified,
    EvaluatorFailed,
    TrialBroken,
    TrialFailed,
    TrialRun,
)
from ratchet.judges.judge import OutOfTime
from ratchet.judges.reports import Feedback
from ratchet.judges.scratch import NOT_RUN, Changed, described, ended, last_words, over_time
from ratchet.kernel import RatchetError, TrialStatus, decoded, shortened
from ratchet.research.measurement.checkout import RecipePaths
from ratchet.sandbox import Finished
from ratchet.sandbox.inside import __file__ as _sandbox
from ratchet.workspaces import TooLarge, UnsafePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A finite score with how it came about. `facts` go into the record: times, memory, exit codes, layers, tails.

    `feedback` is for those who improve the recipe; of a held-out split they get none.
    """

    commit: str
    seed: int
    held_out: bool
    score: float
    measurements: Mapping[str, float] = field(default_factory=dict)
    wall_ms: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    feedback: Feedback = field(default_factory=Feedback)


class Unmeasured(Exception):
    """There is no score. `status` says why, never `keep` or `discard`; with `infra_error` it is worth another try."""

    def __init__(
        self,
        status: TrialStatus,
        reason: str,
        *,
        facts: Mapping[str, Any] | None = None,
        score: float | None = None,
        measurements: Mapping[str, float] | None = None,
        feedback: Feedback | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.facts = facts or {}
        self.score = score
        self.measurements = measurements or {}
        self.feedback = feedback or Feedback()

    def __reduce__(self) -> tuple[Any, ...]:
        # It comes back from nodes as a value.
        return type(self), (self.status, self.reason), self.__dict__


class Meter(Protocol):
    """Measures commits of one run's repository with one pinned evaluator."""

    @property
    def hash(self) -> str:
        """A SHA-256 over everything that decides a score: evaluator, data, inputs, commands, limits."""
        ...

    async def preflight(self, commit: str, base: str) -> None:
        """Raises `Unmeasured` for a commit that is not worth a measurement."""
        ...

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        """One score of a fresh checkout. Raises `Unmeasured`."""
        ...


_READ_BYTES = 50_000
_MESSAGE_LENGTH = 200
_LINE_LENGTH = 2_000
_TRACEBACK = "Traceback (most recent call last)"
_FATAL = "Fatal Python error"
_FRAME = re.compile(r'^[\s|+]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<where>\S.*))?$')
_RAISED = re.compile(r"^[\s|+]*(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
# What crashes are called where there is no traceback.
_NAMED = re.compile(
    rf"(?P<type>{_FATAL}|CUDA error|[\w.]*(?:Error|Exception|Failed|Unsupported)\b)[:\s]*(?P<message>.*)"
)
_SANDBOX = str(PurePosixPath(_sandbox).parent)

InRecipe = Callable[[str], str | None]
"""The path of a file in the recipe, given what a traceback calls it; `None` for one that is not part of it."""


class _Frame(NamedTuple):
    file: str
    line: int
    where: str

    def described(self, name: str) -> str:
        return f"({name}:{self.line} in {self.where})" if self.where else f"({name}:{self.line})"


def crash_excerpt(output: bytes, in_recipe: InRecipe, roots: Sequence[str] = ()) -> str:
    """`Type: message (file.py:3 in function)`, with the deepest frame in the recipe; empty if nothing was said.

    `roots` are directories whose names say nothing to a reader.
    """
    text = decoded(output[-_READ_BYTES:])
    # Looking for a name in a line takes the square of its length.
    lines = [line[:_LINE_LENGTH] for line in text.splitlines()]
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    last = lines[starts[-1] + 1 :] if starts else lines
    said = (_raised(last) if starts else None) or _named(lines) or _last_line(lines)
    if not said:
        return ""
    frame = _deepest(_frames(last), in_recipe) or _deepest(_frames(lines), in_recipe)
    where = frame or _any_frame(_frames(last))
    return f"{_plain(said, roots)} {where}".strip()


def _raised(lines: Sequence[str]) -> str | None:
    """The line of a traceback that names the exception: the first behind the frames that is not part of them."""
    seen_frame = False
    for line in lines:
        if _FRAME.match(line):
            seen_frame = True
        elif seen_frame and not line[:1].isspace() and (found := _RAISED.match(line)):
            message = found["message"]
            return f"{found['type']}: {message}" if message else found["type"]
    return None


def _named(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        if found := _NAMED.search(line):
            return f"{found['type']}: {found['message']}" if found["message"] else found["type"]
    return None


def _last_line(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _frames(lines: Sequence[str]) -> list[_Frame]:
    """From the outermost to the innermost."""
    found = [
        _Frame(match["file"], int(match["line"][:9]), match["where"] or "")
        for line in lines
        if (match := _FRAME.match(line))
    ]
    return found[::-1] if any(_FATAL in line for line in lines) else found


def _deepest(frames: Sequence[_Frame], in_recipe: InRecipe) -> str:
    for frame in reversed(frames):
        name = in_recipe(frame.file)
        if name is not None:
            return frame.described(name)
    return ""


def _any_frame(frames: Sequence[_Frame]) -> str:
    """Better than nothing; not what called the recipe, though."""
    for frame in reversed(frames):
        if not frame.file.startswith(_SANDBOX):
            return frame.described(PurePosixPath(frame.file).name)
    return ""


def _plain(text: str, roots: Sequence[str]) -> str:
    for root in roots:
        text = text.replace(f"{root}/", "")
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return shortened(text, _MESSAGE_LENGTH)


_TAIL = 4096
_SHORT_TAIL = 1024
_LOG_LENGTH = 2000


@dataclass(slots=True)
class MeasurementRecord:
    """`commands` says that the trial is a command and not a function, `has_run` that it has come to an end before.

    `applies` says that it is at the second program, with what the first has left. `roots` are where the recipe was
    seen. `place` is the directory for what the trial leaves; `no_room` says that its disk was full by no fault of the
    trial.
    """

    recipe: RecipePaths
    commands: bool
    has_run: bool = False
    applies: bool = False
    slot: str = ""
    rans: list[TrialRun] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    place: Path | None = None
    no_room: bool = False

    def facts(
        self, *, failed: Finished | None = None, evaluator: Finished | None = None, well: bool = False
    ) -> dict[str, Any]:
        """For the record. Of what went well only little is shown."""
        ends = self._ends(failed)
        tail = _SHORT_TAIL if well else _TAIL
        return {
            "slot": self.slot,
            "trials": [described(each, tail=tail) for each in ends],
            "evaluator": None if evaluator is None else described(evaluator, tail=tail),
        }

    def feedback(self, said: Feedback, failed: Finished | None = None) -> Feedback:
        """What the evaluator said, with the end of the log of the last process that ran."""
        ends = self._ends(failed)
        return replace(said, log=self._log(ends[-1])) if ends else said

    def _ends(self, failed: Finished | None) -> list[Finished]:
        whole = [each for ran in self.rans for each in (ran.trained, ran) if each is not None]
        return [*(each.finished for each in whole), *(() if failed is None else (failed,))]

    def _log(self, finished: Finished) -> str:
        # What a function returns is its answer and no part of a log.
        parts = (*((finished.stdout,) if self.commands else ()), finished.stderr)
        text = "\n".join(decoded(part).strip() for part in parts if part.strip())
        for root in self.roots:
            text = text.replace(f"{root}/", "")
        return text if len(text) <= _LOG_LENGTH else f"…{text[1 - _LOG_LENGTH :]}"


FAILURES = (
    TrialFailed,
    TrialBroken,
    Disqualified,
    EvaluatorFailed,
    Changed,
    OutOfTime,
    RatchetError,
    OSError,
)
"""What can come up instead of a score. Everything else is a mistake of ours."""
_SAID = (
    TrialStatus.DISQUALIFIED,
    TrialStatus.SIZE_BLOCKED,
    TrialStatus.CRASH,
    TrialStatus.TRAIN_BUDGET_OVERRUN,
    TrialStatus.EVAL_BUDGET_OVERRUN,
)


def unmeasured(error: Exception, account: MeasurementRecord) -> Unmeasured:
    """What one of `FAILURES` means for the trial."""
    failed = _unmeasured(error, account)
    said = error.feedback if isinstance(error, Disqualified) else Feedback()
    failed.feedback = account.feedback(
        said, error.finished if isinstance(error, TrialFailed | TrialBroken) else None
    )
    return failed


def _unmeasured(error: Exception, account: MeasurementRecord) -> Unmeasured:
    match error:
        case TrialFailed():
            return _trial_failed(error, account)
        case TrialBroken():
            # A function has no program that could be missing, and a command that has run before has one: whoever ends
            # with such a code now did so on purpose.
            there = account.has_run or not account.commands
            own_doing = error.finished.exit_code is not None and there
            status = TrialStatus.CRASH if own_doing else TrialStatus.INFRA_ERROR
            return Unmeasured(status, str(error), facts=account.facts(failed=error.finished))
        case Disqualified():
            return _disqualified(error, account)
        case EvaluatorFailed():
            return _evaluator_failed(error, account)
        case UnsafePath():
            return Unmeasured(TrialStatus.DISQUALIFIED, str(error), facts=account.facts())
        case TooLarge():
            return Unmeasured(TrialStatus.SIZE_BLOCKED, str(error), facts=account.facts())
    hint = error.hint if isinstance(error, RatchetError) else None
    reason = str(error) or type(error).__name__
    return Unmeasured(
        TrialStatus.INFRA_ERROR, f"{reason} ({hint})" if hint else reason, facts=account.facts()
    )


def _trial_failed(error: TrialFailed, account: MeasurementRecord) -> Unmeasured:
    finished = error.finished
    status, reason = TrialStatus.CRASH, str(error)
    if over_time(finished):
        status = TrialStatus.EVAL_BUDGET_OVERRUN if account.applies else TrialStatus.TRAIN_BUDGET_OVERRUN
    elif not finished.ok:
        reason = f"the trial: {_crash(finished, account)}"
        if account.no_room:
            status, reason = TrialStatus.INFRA_ERROR, f"the disk is full ({reason})"
    return Unmeasured(status, reason, facts=account.facts(failed=finished))


def _crash(finished: Finished, account: MeasurementRecord) -> str:
    def in_recipe(name: str) -> str | None:
        return account.recipe.file(name, account.roots)

    excerpt = crash_excerpt(finished.stderr, in_recipe, account.roots) or last_words(finished)
    return f"{ended(finished)}: {excerpt}" if excerpt else ended(finished)


def _disqualified(error: Disqualified, account: MeasurementRecord) -> Unmeasured:
    facts = account.facts(evaluator=error.finished)
    if error.status is not None and error.status not in _SAID:
        reason = f"the evaluator says {str(error)!r} with the unknown status {error.status[:50]!r}"
        return Unmeasured(TrialStatus.CRASH, reason, facts=facts)
    return Unmeasured(
        TrialStatus(error.status or TrialStatus.DISQUALIFIED),
        str(error),
        facts=facts,
        score=error.score,
        measurements=error.measurements,
    )


def _evaluator_failed(error: EvaluatorFailed, account: MeasurementRecord) -> Unmeasured:
    status = TrialStatus.CRASH
    if over_time(error.finished):
        status = TrialStatus.EVAL_BUDGET_OVERRUN
    elif error.finished.exit_code in NOT_RUN:
        status = TrialStatus.INFRA_ERROR
    return Unmeasured(status, str(error), facts=account.facts(evaluator=error.finished))
