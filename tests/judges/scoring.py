"""A judge of the tests that measures once, as research does: the trial in one sandbox, the evaluator in another."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.judges import Candidate, Evaluator, EvaluatorTrial, Judged
from ratchet.judges.evaluator import (
    Disqualified,
    EvaluatorFailed,
    Scored,
    TrialBroken,
    TrialFailed,
    run_evaluator,
    run_trial,
)
from ratchet.judges.judge import Deadline, OutOfTime, ruled
from ratchet.judges.scratch import Changed, UnsafeResult, scratch
from ratchet.kernel import Outcome, fingerprint
from ratchet.sandbox import CannotStart

_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Passes whatever can be scored."""

    evaluator: Evaluator
    trial: EvaluatorTrial | None = None
    name: str = "scoring"

    @property
    def hash(self) -> str:
        return fingerprint("scoring", evaluator=self.evaluator, trial=self.trial)

    async def judge(self, candidate: Candidate) -> Judged:
        try:
            scored = await self._measure(candidate)
        except (TrialFailed, Disqualified, UnsafeResult) as error:
            return ruled(self, Outcome.FAILED, str(error))
        except (TrialBroken, EvaluatorFailed, OutOfTime, CannotStart, Changed) as error:
            return ruled(self, Outcome.ERROR, str(error))
        return ruled(self, Outcome.PASSED, "scored", score=scored.score, measurements=scored.measurements)

    async def _measure(self, candidate: Candidate) -> Scored:
        deadline = Deadline(candidate.deadline_seconds)
        inputs = None if self.trial is None else self.trial.inputs
        async with (
            self.evaluator.pinned.unchanged(),
            (inputs or self.evaluator.pinned).unchanged(),
            scratch() as place,
        ):
            rans = []
            if self.trial is not None:
                ran = await run_trial(self.trial, candidate.directory, place, seed=_SEED, deadline=deadline)
                rans.append(ran)
            return await run_evaluator(
                self.evaluator, candidate.directory, rans, place, seed=_SEED, deadline=deadline
            )
