"""A judge that measures: an evaluator's score, taken until it is clear whether it beats the incumbent's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from ratchet.judges.comparison import Comparison, Decision, Incumbent, Rule, compare
from ratchet.judges.deadline import Deadline, OutOfTime
from ratchet.judges.endings import described
from ratchet.judges.evaluator import Disqualified, Evaluator, EvaluatorFailed, Scored, run_evaluator
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import Candidate, Judged, Report, ruled
from ratchet.judges.links import Trap, check_links
from ratchet.judges.pinned import Changed
from ratchet.judges.scratch import in_thread, scratch
from ratchet.judges.trial import Ran, Trial, TrialBroken, TrialFailed, run_trial
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import CannotStart

_TAIL = 4096


@dataclass(frozen=True, slots=True)
class Measurement:
    """One score with how it came about."""

    seed: int
    scored: Scored
    ran: Ran | None


@dataclass(frozen=True, kw_only=True)
class ScoreJudge:
    """Passes what scores better than the incumbent by `rule`, or anything that can be scored when there is none.

    The trial and the evaluator are two sandboxes, one after the other, for each measurement. The incumbent is no part
    of the hash: two verdicts with one hash were measured in the same way.
    """

    evaluator: Evaluator
    trial: Trial | None = None
    rule: Rule = field(default_factory=Rule)
    incumbent: Incumbent | None = None
    name: str = "score"

    def __post_init__(self) -> None:
        if self.trial is not None and self.trial.function is not None:
            raise Misuse("this judge runs a trial as a command", hint="give the trial an argv")
        if self.trial is not None:
            shown = [*self.trial.policy.readable, *self.trial.policy.writable]
            if self.trial.inputs is not None:
                shown.append(self.trial.inputs.directory)
            _check_apart(self.evaluator.pinned.directory, *shown)

    @cached_property
    def hash(self) -> str:
        return fingerprint("score 1", evaluator=self.evaluator, trial=self.trial, rule=self.rule)

    async def judge(self, candidate: Candidate) -> Judged:
        _check_apart(self.evaluator.pinned.directory, candidate.directory)
        taken: list[Measurement] = []
        comparison = None
        try:
            async with self._pinned():
                comparison = await self._compared(candidate, taken)
        except (TrialFailed, Disqualified, Trap) as error:
            return self._ruled(Outcome.FAILED, str(error), taken, None)
        except (TrialBroken, EvaluatorFailed, OutOfTime, CannotStart, Changed) as error:
            return self._ruled(Outcome.ERROR, str(error), taken, None)
        better = comparison.decision is Decision.BETTER
        outcome = Outcome.PASSED if better else Outcome.FAILED
        return self._ruled(outcome, _told(comparison, self.rule), taken, comparison)

    async def measure(self, directory: Path, *, seed: int, deadline: Deadline) -> Measurement:
        """One measurement of what is in `directory`."""
        async with scratch() as place:
            ran = None
            if self.trial is not None:
                ran = await run_trial(self.trial, directory, place, seed=seed, deadline=deadline)
            rans = () if ran is None else (ran,)
            scored = await run_evaluator(self.evaluator, directory, rans, place, seed=seed, deadline=deadline)
        return Measurement(seed, scored, ran)

    async def _compared(self, candidate: Candidate, taken: list[Measurement]) -> Comparison:
        deadline = Deadline(candidate.deadline_seconds)
        await in_thread(lambda: check_links(candidate.directory))
        while True:
            seed = self.rule.seed + len(taken)
            taken.append(await self.measure(candidate.directory, seed=seed, deadline=deadline))
            comparison = compare(_samples(taken), self.incumbent, self.rule)
            if comparison.decision is not Decision.UNCLEAR:
                return comparison

    @asynccontextmanager
    async def _pinned(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.evaluator.pinned.unchanged())
            if self.trial is not None and self.trial.inputs is not None:
                await stack.enter_async_context(self.trial.inputs.unchanged())
            yield

    def _ruled(
        self, outcome: Outcome, reason: str, taken: list[Measurement], comparison: Comparison | None
    ) -> Judged:
        report = {
            "rule": asdict(self.rule),
            "incumbent": None if self.incumbent is None else asdict(self.incumbent),
            "measurements": [_described(each) for each in taken],
            "comparison": None if comparison is None else asdict(comparison),
        }
        return ruled(
            self,
            outcome,
            reason,
            report=Report(f"{self.name}.json", json.dumps(report).encode()),
            # Scores that were measured before something went wrong are in the report; they are nobody's score.
            score=comparison.mean if comparison else None,
            measurements={**_means(taken), **comparison.measurements()} if comparison else {},
            samples=_samples(taken) if comparison else (),
        )


def _samples(taken: list[Measurement]) -> tuple[float, ...]:
    return tuple(each.scored.score for each in taken)


def _means(taken: list[Measurement]) -> dict[str, float]:
    """What the evaluator measured beside the score, where it did so every time."""
    every = set.intersection(*(set(each.scored.measurements) for each in taken))
    return {
        f"evaluator.{name}": fmean(each.scored.measurements[name] for each in taken) for name in sorted(every)
    }


def _described(measurement: Measurement) -> dict[str, Any]:
    ran = measurement.ran
    return {
        "seed": measurement.seed,
        "score": measurement.scored.score,
        "measurements": measurement.scored.measurements,
        "trial": None if ran is None else described(ran.finished, tail=_TAIL),
        "evaluator": described(measurement.scored.finished, tail=_TAIL),
    }


def _told(comparison: Comparison, rule: Rule) -> str:
    mean = f"{comparison.mean:g} ± {comparison.sd:g} from {comparison.n}"
    if comparison.effect is None:
        return f"{mean}; there is no incumbent to beat"
    how = "better than" if comparison.decision is Decision.BETTER else "not clearly better than"
    wanted = f" by more than {rule.min_effect:g}" if rule.min_effect else ""
    return f"{mean} is {how} {comparison.incumbent_mean:g}{wanted} (p = {comparison.p_value:.3g})"


def _check_apart(evaluator: Path, *others: Path) -> None:
    for other in (each.resolve() for each in others):
        if evaluator.is_relative_to(other) or other.is_relative_to(evaluator):
            raise Misuse(
                f"the evaluator in {evaluator} is within reach of the candidate, which is shown {other}",
                hint="keep the evaluator in a directory of its own",
            )
