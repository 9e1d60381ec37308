"""The first commit and its trial, number 000: what everything else has to beat."""

from __future__ import annotations

import asyncio

from ratchet.kernel import Misuse, RatchetError, TrialStatus
from ratchet.ledger.research import get_standing, set_baseline
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Ending, Submission, end_trial, find_trial, get_trial, open_trial
from ratchet.research.campaign import Campaign
from ratchet.research.keeping import Baseline, Champion, calibrate
from ratchet.research.measurement import Unmeasured
from ratchet.research.tasks import initial_files
from ratchet.research.trial import name_commit, show_best

_AUTHOR = "baseline"


async def begin(campaign: Campaign) -> None:
    """Give the campaign its baseline and its champion: measured now, or as the ledger has them."""
    campaign.baseline_commit = await asyncio.to_thread(_first_commit, campaign)
    with campaign.job.write() as tx:
        first = find_trial(tx, campaign.run_id, 0)
        if first is None:
            first = open_trial(tx, campaign.run_id, _submission(campaign), baseline=True)
            name_commit(tx, campaign, first)
    if first.status is None:
        await _calibrate(campaign, first)
    with campaign.job.ledger.read() as tx:
        standing = get_standing(tx, campaign.run_id)
        assert standing.baseline is not None
        assert standing.best is not None
        best = get_trial(tx, campaign.run_id, standing.best)
    campaign.noise = Baseline.of(standing.baseline).noise
    assert best.commit is not None
    campaign.champion = Champion.of(best.number, best.commit, best.measurements)
    campaign.submitted, campaign.draws = standing.trials, standing.next_number
    await asyncio.to_thread(show_best, campaign.repository, lambda: campaign.best.commit)


def _first_commit(campaign: Campaign) -> str:
    """The recipe as it came. The time is the run's, so that doing it again makes the same commit."""
    return campaign.repository.commit_files(
        initial_files(campaign.task),
        parent=None,
        message=f"Baseline of {campaign.task.name}",
        at=campaign.run.created_at // 1000,
    )


def _submission(campaign: Campaign) -> Submission:
    task = campaign.task
    return Submission(
        specialist=_AUTHOR,
        hypothesis=task.bootstrap_hypothesis,
        notes=task.baseline_note,
        commit=campaign.baseline_commit,
        parent=None,
    )


async def _calibrate(campaign: Campaign, first: Trial) -> None:
    baseline = await _measured(campaign)
    with campaign.job.write() as tx:
        set_baseline(tx, campaign.run_id, baseline.record())
        ending = Ending(
            status=TrialStatus.BASELINE,
            reason=baseline.told,
            score=baseline.mean,
            measurements=baseline.record(),
            evaluator=campaign.meter.hash,
        )
        end_trial(tx, campaign.run_id, first.number, ending)
        campaign.count_time(tx)


async def _measured(campaign: Campaign) -> Baseline:
    """Measure the baseline, unless the person or the task has told its score.

    Raises `Misuse` for a recipe that cannot be measured. A machine that spoils it is no misuse: the job is tried again.
    """
    task = campaign.task
    given = task.baseline_score if campaign.plan.baseline_score is None else campaign.plan.baseline_score
    if given is not None and not task.requires_calibrated_baseline:
        return Baseline((given,), told="told, not measured")
    try:
        await campaign.meter.preflight(campaign.baseline_commit, campaign.baseline_commit)
        return await calibrate(campaign.meter, campaign.baseline_commit, task.keep)
    except Unmeasured as unmeasured:
        infra = unmeasured.status is TrialStatus.INFRA_ERROR
        raise (RatchetError if infra else Misuse)(
            f"the baseline of {task.name} cannot be measured ({unmeasured.status}): {unmeasured.reason}",
            hint="mend the task; `ratchet research check` shows what is wrong with it",
        ) from unmeasured
