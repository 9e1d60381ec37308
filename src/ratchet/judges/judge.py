"""The seam to whatever decides, what it is shown, and what it says."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ratchet.engines import Session, SessionEvent
from ratchet.engines.engine import unheard
from ratchet.engines.transcript import record_session
from ratchet.kernel import (
    LedgerError,
    Limits,
    Misuse,
    Outcome,
    Superseded,
    Usage,
    Verdict,
    exhausted,
    fingerprint,
)
from ratchet.ledger import ArtifactStore, Spender, Transaction
from ratchet.observe.logs import logger
from ratchet.sandbox import Bounds


class OutOfTime(Exception):
    """The attempt's own time ran out before the candidate had the time that it was promised."""

    def __init__(self) -> None:
        super().__init__("the attempt's time ran out before the candidate was judged")


class Deadline:
    """Counts down from `seconds`; `None` never ends."""

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - self._clock())

    def cut(self, bounds: Bounds) -> Bounds:
        """`bounds`, made shorter when less time is left. Raises `OutOfTime` when none is."""
        left = self.left
        if left is None or left >= bounds.wall_seconds:
            return bounds
        if left == 0.0:
            raise OutOfTime
        return replace(bounds, wall_seconds=left)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is judged: a commit, checked out afresh into a directory that its author never wrote.

    No judge changes `directory`: one that lets others write takes a copy of its own, so that several may look at once.
    `prompt` is what was asked for. `deadline_seconds` is the time that the attempt
    has left and `limits` its budget. `finished` holds the verdicts of judges that were asked before this one, by their
    hash.
    """

    commit: str
    base: str
    directory: Path
    author: str
    run_id: int | None = None
    attempt_id: int | None = None
    prompt: str = ""
    read_diff: Callable[[], str] = field(default=str, compare=False)
    deadline_seconds: float | None = None
    limits: Limits = field(default_factory=Limits)
    listen: Callable[[SessionEvent], None] = field(default=unheard, compare=False)
    finished: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def diff(self) -> str:
        """What changed since `base`. Worked out when it is looked at: most judges never do."""
        return self.read_diff()


@dataclass(frozen=True, slots=True)
class Report:
    """Evidence for the artifact store. Its address there is known before it is stored."""

    name: str
    content: bytes
    media_type: str = "application/json"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with everything that is to be recorded beside it.

    `verdict.report` is the address of one of `reports`, so they can be stored before it or after it. `found` is what
    keeping the candidate takes besides the verdict, such as what its checks have read.
    """

    verdict: Verdict
    reports: tuple[Report, ...] = ()
    sessions: tuple[Session, ...] = ()
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[float, ...]:
        return self.verdict.samples

    @property
    def usage(self) -> Usage:
        return sum((session.usage for session in self.sessions), Usage())


class Judge(Protocol):
    """Decides. Whatever a candidate does, it gets a verdict: an exception is for mistakes in the set-up."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str:
        """A SHA-256 over everything that decides: command lines, evaluator, prompt, schema, thresholds."""
        ...

    async def judge(self, candidate: Candidate) -> Judged:
        """Raises `Misuse` for a candidate that this judge may never judge."""
        ...


def ruled(
    judge: Judge,
    outcome: Outcome,
    reason: str,
    *,
    report: Report | None = None,
    score: float | None = None,
    measurements: Mapping[str, float] | None = None,
    sessions: tuple[Session, ...] = (),
    samples: tuple[float, ...] = (),
) -> Judged:
    """The verdict of `judge`, put together. It is simulated when any of its sessions was."""
    verdict = Verdict(
        outcome,
        reason,
        judge.name,
        judge.hash,
        score=score,
        measurements=measurements or {},
        report=None if report is None else report.sha256,
        simulated=any(session.simulated for session in sessions),
        samples=samples,
    )
    return Judged(verdict, () if report is None else (report,), sessions)


_log = logger(__name__)


async def hear(judge: Judge, candidate: Candidate) -> Judged:
    """What `judge` says of `candidate`; a judge that breaks down says `error`.

    Three things are not for a verdict and are raised: the judge was set up wrongly, the job was taken over, and the
    ledger cannot be written.
    """
    try:
        judged = await judge.judge(candidate)
    except (Misuse, Superseded, LedgerError):
        raise
    except Exception as error:
        if exhausted(error) is not None:
            raise
        # Whatever it is, the candidate was not judged.
        _log.warning("a judge broke down", judge=judge.name, exc_info=True)
        return ruled(judge, Outcome.ERROR, f"the judge broke down: {type(error).__name__}: {error}")
    return _checked(judge, judged)


def _checked(judge: Judge, judged: object) -> Judged:
    """Judges may come from anywhere. One that does not sign its verdict, or whose numbers are none, gave none."""
    if isinstance(judged, Judged) and _holds(judge, judged.verdict):
        return judged
    sessions = judged.sessions if isinstance(judged, Judged) else ()
    shown = str(getattr(judged, "verdict", judged))[:200]
    return ruled(
        judge, Outcome.ERROR, f"the judge's answer is no verdict of its own: {shown!r}", sessions=sessions
    )


def _holds(judge: Judge, verdict: object) -> bool:
    if not isinstance(verdict, Verdict) or not isinstance(verdict.outcome, Outcome):
        return False
    scores = [] if verdict.score is None else [verdict.score]
    numbers = [*scores, *verdict.samples, *verdict.measurements.values()]
    return verdict.judge_hash == judge.hash and all(math.isfinite(number) for number in numbers)


def record_judged(tx: Transaction, artifacts: ArtifactStore, judged: Judged, spender: Spender) -> None:
    """Keep everything that the verdict stands on. The verdict itself is the caller's to record."""
    for report in judged.reports:
        artifacts.put(
            tx,
            report.content,
            name=report.name,
            media_type=report.media_type,
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        )
    for session in judged.sessions:
        record_session(tx, artifacts, session, "reviewer", spender)


NOT_COUNTED = "not_counted"
"""How much a judge looked at that could not decide, such as checks that were red before the change."""
ABSTAINED = "abstained"
"""Whether nothing that a judge looked at could decide, so that it passes without having judged."""
_WORST_FIRST = (Outcome.ERROR, Outcome.FAILED, Outcome.PASSED)


def all_of(*judges: Judge, name: str = "all of") -> AllOf:
    """Passes what all of `judges` pass. All are asked, at the same time; the worst outcome counts."""
    return AllOf(name, judges)


def first_failure(*judges: Judge, name: str = "first failure") -> FirstFailure:
    """Passes what all of `judges` pass. They are asked in order, and none after the first that does not pass."""
    return FirstFailure(name, judges)


@dataclass(frozen=True, slots=True)
class _Combined:
    name: str
    judges: tuple[Judge, ...]
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        _check(self.name, self.judges)

    @property
    def hash(self) -> str:
        return fingerprint(self.kind, judges=[(each.name, each.hash) for each in self.judges])


@dataclass(frozen=True, slots=True)
class AllOf(_Combined):
    kind = "all of 1"

    async def judge(self, candidate: Candidate) -> Judged:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(hear(each, candidate)) for each in self.judges]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return _merged(self, [task.result() for task in asked])


@dataclass(frozen=True, slots=True)
class FirstFailure(_Combined):
    kind = "first failure 1"

    async def judge(self, candidate: Candidate) -> Judged:
        deadline = Deadline(candidate.deadline_seconds)
        judged: list[Judged] = []
        for judge in self.judges:
            known = {each.verdict.judge_hash: each.verdict for each in judged}
            finished = {**candidate.finished, **known}
            judged.append(
                await hear(judge, replace(candidate, deadline_seconds=deadline.left, finished=finished))
            )
            if not judged[-1].verdict.passed:
                break
        return _merged(self, judged)


def _merged(judge: AllOf | FirstFailure, judged: Sequence[Judged]) -> Judged:
    verdicts = [each.verdict for each in judged]
    outcome = min((each.outcome for each in verdicts), key=_WORST_FIRST.index)
    against = [f"{each.judge}: {each.reason}" for each in verdicts if not each.passed]
    scored = [each for each in verdicts if each.score is not None]
    own = Report(f"{judge.name}.json", json.dumps([asdict(each) for each in verdicts]).encode())
    merged = ruled(
        judge,
        outcome,
        "; ".join(against) or _passed_by(verdicts),
        report=own,
        # Two scores cannot be one: then each is only among the measurements.
        score=scored[0].score if len(scored) == 1 else None,
        samples=scored[0].samples if len(scored) == 1 else (),
        measurements=_measurements(verdicts),
        sessions=tuple(session for each in judged for session in each.sessions),
    )
    simulated = any(each.simulated for each in verdicts)
    return replace(
        merged,
        verdict=replace(merged.verdict, simulated=simulated),
        reports=(own, *(report for each in judged for report in each.reports)),
    )


def _passed_by(verdicts: Sequence[Verdict]) -> str:
    """Who passed it; of a judge that left something out of its decision, what that was."""
    decided = [each.judge for each in verdicts if not each.measurements.get(ABSTAINED)]
    partly = [
        f"{each.judge}: {each.reason}"
        for each in verdicts
        if each.measurements.get(NOT_COUNTED) or each.measurements.get(ABSTAINED)
    ]
    return "; ".join((f"passed by {', '.join(decided) or 'no judge'}", *partly))


def _measurements(verdicts: Sequence[Verdict]) -> dict[str, float]:
    found: dict[str, float] = {}
    for verdict in verdicts:
        scores = {} if verdict.score is None else {"score": verdict.score}
        found |= {
            f"{verdict.judge}.{name}": value for name, value in {**scores, **verdict.measurements}.items()
        }
    return found


def _check(name: str, judges: Sequence[Judge]) -> None:
    if not judges:
        raise Misuse(f"{name!r} has no judges, so it would pass everything")
    names = [judge.name for judge in judges]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise Misuse(f"two judges of {name!r} are called {twice[0]!r}", hint="give each a name of its own")
