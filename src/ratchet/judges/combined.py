"""Several judges as one: all of them at once, or one after the other until one does not pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Deadline, Judge, Judged, Report, hear, ruled
from ratchet.kernel import Misuse, Outcome, Verdict

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
    partly = [f"{each.judge}: {each.reason}" for each in verdicts if each.measurements.get(NOT_COUNTED)]
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
