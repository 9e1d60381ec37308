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
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ratchet.engines.transcript import account_of, write_now
from ratchet.judges import Candidate, Judged, Report
from ratchet.judges.judge import ruled
from ratchet.kernel import Outcome, StateChanged, TrialStatus, Usage, exact_bytes
from ratchet.ledger import Spender, Transaction
from ratchet.ledger.trials import Ending, Submission, Trial, TrialOrigin, end_trial, open_trial, try_again
from ratchet.ledger.usage import total
from ratchet.loop import KEPT, Judgement, judge_candidate, passed
from ratchet.research.campaign import BEST, Campaign, SoFar
from ratchet.research.decision import Champion, Decided, certificate, certificate_json, decide, run_level
from ratchet.research.measurement.result import Measurement, Meter, Unmeasured
from ratchet.workspaces import Repository
from ratchet.workspaces.packs import record_commit


class Proof(NamedTuple):
    diff: Report
    certificate: Report


class _Ruling(NamedTuple):
    """A decision, the best that it was made against, what the run had made so far, and the diff of what is kept."""

    decided: Decided
    champion: Champion
    so_far: SoFar
    diff: str


def proof_of(campaign: Campaign, trial: Trial, ruling: _Ruling) -> Proof:
    """Both, as they are stored."""
    decided, champion, so_far, diff = ruling
    task, attempt_id = campaign.task, trial.attempt_id
    change = Report(f"{trial.exp_id}.diff", exact_bytes(diff), "text/x-diff")
    with campaign.job.ledger.read() as tx:
        usage, now = Usage() if attempt_id is None else total(tx, "attempt", attempt_id), tx.now
    proof = certificate(
        decided,
        champion=champion,
        rule=task.keep,
        direction=task.direction,
        noise=campaign.noise,
        trial=trial.number,
        parent=campaign.repository.resolve(f"{decided.commit}^"),
        diff_sha256=change.sha256,
        evaluator=campaign.meter.hash,
        environment=campaign.meter.environment_facts(),
        usage=usage,
        session=attempt_id,
        started_at=trial.started_at,
        ended_at=now,
        run={**so_far, "id": campaign.run_id},
        key=campaign.key,
    )
    return Proof(change, Report(f"{trial.exp_id}-certificate.json", certificate_json(proof)))


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
            ruling = await self._decide()
        except Unmeasured as unmeasured:
            infra = unmeasured.status is TrialStatus.INFRA_ERROR
            outcome = Outcome.ERROR if infra else Outcome.FAILED
            found = {ENDING: _unmeasured(self.campaign, unmeasured)}
            return replace(ruled(self, outcome, unmeasured.reason), found=found)
        # From here to the transaction that records it nothing is waited for: the best is still the one that was beaten.
        decided = ruling.decided
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
        proof = proof_of(self.campaign, self.trial, ruling)
        best = Champion.of(self.trial.number, decided.commit, decided.record())
        return replace(
            judged,
            verdict=replace(judged.verdict, report=proof.certificate.sha256),
            reports=(proof.diff, proof.certificate),
            found={ENDING: replace(ending, certificate=proof.certificate.sha256), CHAMPION: best},
        )

    async def _decide(self) -> _Ruling:
        """Decide against the best there is. If that moves meanwhile, it is the new one that has to be beaten.

        What has lost to a best that was worse is not measured again: nothing gets a second chance to be lucky.
        """
        campaign, task, commit = self.campaign, self.campaign.task, self.trial.commit
        assert commit is not None
        while True:
            champion, so_far = campaign.best, campaign.so_far()
            level = run_level(task.keep.alpha, self.trial.number, **so_far)
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
                    level=level,
                )
            except Unmeasured as unmeasured:
                if unmeasured.status is not TrialStatus.INFRA_ERROR:
                    raise
                await self._retry(unmeasured)
                continue
            diff = ""
            if decided.kept:
                read = campaign.repository.diff
                diff = await asyncio.to_thread(read, f"{decided.commit}^", decided.commit)
            if campaign.best is champion or not decided.kept:
                return _Ruling(decided, champion, so_far, diff)

    async def _retry(self, unmeasured: Unmeasured) -> None:
        """Count a measurement that the machine spoiled. Raises it when there were too many of them."""
        campaign, tries = self.campaign, self.trial.tries + 1
        if tries >= campaign.job.runtime.settings.research.infra_tries:
            raise unmeasured
        with campaign.job.write() as tx:
            self.trial = try_again(tx, campaign.run_id, self.trial.number, unmeasured.reason)
        await asyncio.sleep(_INFRA_PAUSE_SECONDS * tries)


def _decided(campaign: Campaign, decided: Decided) -> Ending:
    return Ending(
        status=decided.status,
        reason=decided.reason,
        score=decided.score,
        delta=decided.delta,
        compared_to=decided.compared_to,
        measurements={**decided.record(), "environment": campaign.environment_hash},
        evaluator=campaign.meter.hash,
    )


def _unmeasured(campaign: Campaign, unmeasured: Unmeasured) -> Ending:
    return Ending(
        status=unmeasured.status,
        reason=unmeasured.reason,
        score=unmeasured.score,
        measurements={
            "means": dict(unmeasured.measurements),
            "facts": dict(unmeasured.facts),
            **unmeasured.feedback.record(),
        },
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
    commit, ref = trial.commit, f"refs/trials/{trial.exp_id}"
    assert commit is not None
    tx.add_file(campaign.repository.ref_file(ref, commit))
    if campaign.travels:
        pack = campaign.packs.get(commit) or campaign.repository.pack(commit)
        record_commit(tx, campaign.job.ledger.artifacts, campaign.run_id, ref, commit, pack)
        tx.after_commit(lambda: campaign.packs.pop(commit, None))


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
    campaign.population.add(TrialOrigin.of(ended))
    if ended.status is TrialStatus.INFRA_ERROR:
        campaign.novelty.forget((ended.origin or {}).get("code", ""), ended.number)
        campaign.infra_in_a_row += 1
        campaign.submitted -= 1
    else:
        campaign.infra_in_a_row = 0
    if champion is not None:
        campaign.champion = champion
        campaign.keeps += 1
