"""One trial, from a commit that was handed in to a row that has ended.

The row is there before anything is measured, so a process that dies leaves a number and a commit, and the next one
measures it again. What is recorded is recorded at once: the row, the best, the tallies and the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import replace

from ratchet.engines.listening import account_of, write_now
from ratchet.judges import Candidate
from ratchet.kernel import StateChanged, TrialStatus
from ratchet.ledger import Spender, Transaction
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial
from ratchet.loop import KEPT, Judgement, judge_candidate, passed
from ratchet.research.campaign import BEST, Campaign
from ratchet.research.judge import CHAMPION, ENDING, TrialJudge
from ratchet.research.keeping import Champion
from ratchet.workspaces import Repository

Also = Callable[[Transaction, Trial], None]
"""What else is to be recorded in the transaction in which a trial ends."""


def nothing_else(_tx: Transaction, _trial: Trial) -> None:
    """Nothing."""


async def finish_trial(campaign: Campaign, trial: Trial, also: Also = nothing_else) -> Trial:
    """Have a trial in flight judged, and record how it ended."""
    began = time.monotonic()
    judge = TrialJudge(campaign, trial)
    candidate = _candidate(campaign, trial)
    spender = Spender(trial.attempt_id, campaign.run_id, campaign.run.project_id)
    account = account_of(campaign.job, spender, judge.name)
    while True:
        judgement = await judge_candidate(account, judge, candidate)
        wall_ms = round((time.monotonic() - began) * 1000)
        # A best that has moved in the ledger is the one to beat.
        with contextlib.suppress(StateChanged):
            return await _record(campaign, trial, judgement, wall_ms, also)


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
    tx.add_file(campaign.repository.ref_file(f"refs/trials/{trial.exp_id}", trial.commit))


def _candidate(campaign: Campaign, trial: Trial) -> Candidate:
    commit = trial.commit
    assert commit is not None
    return Candidate(
        commit,
        f"{commit}^",
        campaign.repository.path,
        trial.specialist,
        run_id=campaign.run_id,
        attempt_id=trial.attempt_id,
        prompt=trial.hypothesis,
        read_diff=functools.partial(campaign.repository.diff, f"{commit}^", commit),
    )


async def _record(campaign: Campaign, trial: Trial, judgement: Judgement, wall_ms: int, also: Also) -> Trial:
    """Record how a trial ended. One that is kept becomes the best, by compare-and-set; raises `StateChanged`."""
    found, verdict = judgement.judged.found, judgement.judged.verdict
    # Of a judge that broke down there is only the verdict.
    ending: Ending = found.get(ENDING) or Ending(status=TrialStatus.INFRA_ERROR, reason=verdict.reason)
    champion: Champion | None = found.get(CHAMPION)

    def write(tx: Transaction) -> Trial:
        ended = end_trial(tx, campaign.run_id, trial.number, replace(ending, wall_ms=wall_ms))
        campaign.count_time(tx)
        also(tx, ended)
        tx.after_commit(lambda: _count(campaign, ended, champion))
        return ended

    if champion is None:
        return await judgement.record(campaign.together.write, write)
    ended = await judgement.record(write_now(campaign.job), write)
    await asyncio.to_thread(show_best, campaign.repository, lambda: campaign.best.commit)
    passed(KEPT)
    return ended


def _count(campaign: Campaign, ended: Trial, champion: Champion | None) -> None:
    if ended.status is TrialStatus.INFRA_ERROR:
        campaign.infra_in_a_row += 1
        campaign.submitted -= 1
    else:
        campaign.infra_in_a_row = 0
    campaign.champion = champion or campaign.champion
