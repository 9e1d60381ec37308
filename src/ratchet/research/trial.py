"""One trial, from a commit that was handed in to a row that has ended.

The row is there before anything is measured, so a process that dies leaves a number and a commit, and the next one
measures it again. What is recorded is recorded at once: the row, the best, the tallies and the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ratchet.kernel import StateChanged, TrialStatus
from ratchet.ledger import Transaction
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial, try_again
from ratchet.research.campaign import BEST, Campaign
from ratchet.research.keeping import Champion, Decided, decide
from ratchet.research.measurement import Measurement, Meter, Unmeasured
from ratchet.research.proof import store_proof
from ratchet.workspaces import Repository

Also = Callable[[Transaction, Trial], None]
"""What else is to be recorded in the transaction in which a trial ends."""
_INFRA_PAUSE_SECONDS = 1.0


def nothing_else(_tx: Transaction, _trial: Trial) -> None:
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision, the best that it was made against, and, of a trial that is kept, how it differs from its parent."""

    decided: Decided
    champion: Champion
    diff: str = ""


async def finish_trial(campaign: Campaign, trial: Trial, also: Also = nothing_else) -> Trial:
    """Measure a trial in flight, decide on it, and record how it ended."""
    began = time.monotonic()
    ruling: Ruling | None = None
    try:
        ruling = await _rule(campaign, trial)
        ending = _judged(campaign, ruling.decided)
    except Unmeasured as unmeasured:
        ending = _unmeasured(campaign, unmeasured)
    # From the ruling to here nothing was waited for, so the best is still the one that was beaten.
    wall_ms = round((time.monotonic() - began) * 1000)
    ending = replace(ending, wall_ms=wall_ms)
    if ruling is not None and ruling.decided.kept:
        ended = _keep(campaign, trial, ending, ruling, also)
        await asyncio.to_thread(show_best, campaign.repository, lambda: campaign.best.commit)
        return ended
    return await _discard(campaign, trial, ending, also)


def show_best(repository: Repository, commit: Callable[[], str]) -> None:
    """Bring the ref of the best to where the ledger has it, which `commit` tells."""
    while (shown := repository.ref(BEST)) != (best := commit()):
        with contextlib.suppress(StateChanged):  # another trial that was kept has moved it meanwhile
            repository.advance(BEST, best, expected=shown)


def open_named(tx: Transaction, campaign: Campaign, submission: Submission) -> Trial:
    """Open a trial, whose commit gets a ref of its own: the evidence stays, kept or not."""
    trial = open_trial(tx, campaign.run_id, submission, most=campaign.stops.trials)
    name_commit(tx, campaign, trial)
    return trial


def name_commit(tx: Transaction, campaign: Campaign, trial: Trial) -> None:
    assert trial.commit is not None
    tx.unsettled.add(campaign.repository.ref_file(f"refs/trials/{trial.exp_id}", trial.commit))


async def _rule(campaign: Campaign, trial: Trial) -> Ruling:
    """Decide against the best there is. If that moves meanwhile, it is the new one that has to be beaten."""
    assert trial.commit is not None
    meter, task = Remembering(campaign.meter), campaign.task
    while True:
        champion = campaign.best
        meter.begin()
        try:
            await meter.preflight(trial.commit, campaign.baseline_commit)
            decided = await decide(
                meter, trial.commit, champion, task.keep, task.direction, campaign.noise, trial=trial.number
            )
        except Unmeasured as unmeasured:
            if unmeasured.status is not TrialStatus.INFRA_ERROR:
                raise
            trial = await _again(campaign, trial, unmeasured)
            continue
        diff = await asyncio.to_thread(_diff, campaign, decided) if decided.kept else ""
        if campaign.best is champion:
            return Ruling(decided, champion, diff)


async def _again(campaign: Campaign, trial: Trial, unmeasured: Unmeasured) -> Trial:
    """Count a measurement that the machine spoiled. Raises it when there were too many of them."""
    tries = trial.tries + 1
    if tries >= campaign.job.runtime.settings.research.infra_tries:
        raise unmeasured
    with campaign.job.write() as tx:
        again = try_again(tx, campaign.run_id, trial.number, unmeasured.reason)
    await asyncio.sleep(_INFRA_PAUSE_SECONDS * tries)
    return again


def _diff(campaign: Campaign, decided: Decided) -> str:
    return campaign.repository.diff(f"{decided.commit}^", decided.commit)


def _judged(campaign: Campaign, decided: Decided) -> Ending:
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


def _keep(campaign: Campaign, trial: Trial, ending: Ending, ruling: Ruling, also: Also) -> Trial:
    decided = ruling.decided
    with campaign.job.write() as tx:
        proof = store_proof(tx, campaign, trial, decided, ruling.champion, ruling.diff)
        ended = _end(tx, campaign, trial, replace(ending, certificate=proof), also)
    campaign.infra_in_a_row = 0
    campaign.champion = Champion.of(ended.number, decided.commit, decided.record())
    return ended


async def _discard(campaign: Campaign, trial: Trial, ending: Ending, also: Also) -> Trial:
    def write(tx: Transaction) -> Trial:
        ended = _end(tx, campaign, trial, ending, also)
        tx.after_commit(lambda: _count_infra(campaign, ended))
        return ended

    return await campaign.together.write(write)


def _count_infra(campaign: Campaign, ended: Trial) -> None:
    if ended.status is TrialStatus.INFRA_ERROR:
        campaign.infra_in_a_row += 1
        campaign.submitted -= 1
    else:
        campaign.infra_in_a_row = 0


def _end(tx: Transaction, campaign: Campaign, trial: Trial, ending: Ending, also: Also) -> Trial:
    ended = end_trial(tx, campaign.run_id, trial.number, ending)
    campaign.count_time(tx)
    also(tx, ended)
    return ended


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
