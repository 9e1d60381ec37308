"""The judge of a trial: it measures the commit, and the best beside it, until it is clear whether it is better."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from ratchet.judges import Candidate, Judged
from ratchet.judges.judge import ruled
from ratchet.kernel import Outcome, TrialStatus
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Ending, try_again
from ratchet.research.campaign import Campaign
from ratchet.research.keeping import Champion, Decided, decide
from ratchet.research.measurement import Measurement, Meter, Unmeasured
from ratchet.research.proof import proof_of

ENDING, CHAMPION = "ending", "champion"
_INFRA_PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class TrialJudge:
    """Passes what is better than the best of the campaign, by the rule of the task.

    What it found is how the trial ends, and of one that passed, the best that there is from then on. It sees no
    directory of the candidate: for each measurement the commit is checked out again.
    """

    campaign: Campaign
    trial: Trial
    name: str = "trial"
    _meter: Remembering = field(init=False)

    def __post_init__(self) -> None:
        self._meter = Remembering(self.campaign.meter)

    @property
    def hash(self) -> str:
        return self.campaign.meter.hash

    async def judge(self, candidate: Candidate) -> Judged:
        try:
            decided, champion, diff = await self._decide()
        except Unmeasured as unmeasured:
            infra = unmeasured.status is TrialStatus.INFRA_ERROR
            outcome = Outcome.ERROR if infra else Outcome.FAILED
            found = {ENDING: _unmeasured(self.campaign, unmeasured)}
            return replace(ruled(self, outcome, unmeasured.reason), found=found)
        # From here to the transaction that records it nothing is waited for: the best is still the one that was beaten.
        ending = _decided(self.campaign, decided)
        judged = ruled(
            self,
            Outcome.PASSED if decided.kept else Outcome.FAILED,
            decided.reason,
            score=decided.score,
            measurements=decided.means,
            samples=decided.samples,
        )
        if not decided.kept:
            return replace(judged, found={ENDING: ending})
        proof = proof_of(self.campaign, self.trial, decided, champion, diff)
        best = Champion.of(self.trial.number, decided.commit, decided.record())
        return replace(
            judged,
            verdict=replace(judged.verdict, report=proof.certificate.sha256),
            reports=(proof.diff, proof.certificate),
            found={ENDING: replace(ending, certificate=proof.certificate.sha256), CHAMPION: best},
        )

    async def _decide(self) -> tuple[Decided, Champion, str]:
        """Decide against the best there is. If that moves meanwhile, it is the new one that has to be beaten."""
        campaign, task, commit = self.campaign, self.campaign.task, self.trial.commit
        assert commit is not None
        while True:
            champion = campaign.best
            self._meter.begin()
            try:
                await self._meter.preflight(commit, campaign.baseline_commit)
                decided = await decide(
                    self._meter,
                    commit,
                    champion,
                    task.keep,
                    task.direction,
                    campaign.noise,
                    trial=self.trial.number,
                )
            except Unmeasured as unmeasured:
                if unmeasured.status is not TrialStatus.INFRA_ERROR:
                    raise
                await self._retry(unmeasured)
                continue
            diff = await asyncio.to_thread(_diff, campaign, decided) if decided.kept else ""
            if campaign.best is champion:
                return decided, champion, diff

    async def _retry(self, unmeasured: Unmeasured) -> None:
        """Count a measurement that the machine spoiled. Raises it when there were too many of them."""
        campaign, tries = self.campaign, self.trial.tries + 1
        if tries >= campaign.job.runtime.settings.research.infra_tries:
            raise unmeasured
        with campaign.job.write() as tx:
            self.trial = try_again(tx, campaign.run_id, self.trial.number, unmeasured.reason)
        await asyncio.sleep(_INFRA_PAUSE_SECONDS * tries)


def _diff(campaign: Campaign, decided: Decided) -> str:
    return campaign.repository.diff(f"{decided.commit}^", decided.commit)


def _decided(campaign: Campaign, decided: Decided) -> Ending:
    return Ending(
        status=decided.status,
        reason=decided.reason,
        score=decided.score,
        delta=decided.delta,
        compared_to=decided.compared_to,
        measurements=decided.record(),
        evaluator=campaign.meter.hash,
    )


def _unmeasured(campaign: Campaign, unmeasured: Unmeasured) -> Ending:
    return Ending(
        status=unmeasured.status,
        reason=unmeasured.reason,
        score=unmeasured.score,
        measurements={"means": dict(unmeasured.measurements), "facts": dict(unmeasured.facts)},
        evaluator=campaign.meter.hash,
    )


class Remembering:
    """A meter that is not asked again for the first score of a trial when the best has moved meanwhile."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._first: Measurement | None = None
        self._at_hand: Measurement | None = None

    def begin(self) -> None:
        """Another decision is made on the trial; what is remembered serves it once."""
        self._at_hand = self._first

    @property
    def hash(self) -> str:
        return self._meter.hash

    async def preflight(self, commit: str, base: str) -> None:
        if self._first is None:
            await self._meter.preflight(commit, base)

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        known, self._at_hand = self._at_hand, None
        if known is not None and (known.commit, known.seed, known.held_out) == (commit, seed, held_out):
            return known
        measured = await self._meter.measure(commit, seed=seed, held_out=held_out)
        self._first = self._first or measured
        return measured
