"""A research run from its start to its end: baseline, what was left in flight, then sessions until a stop.

Reading the ledger is all it takes to resume after a crash: trials in flight have a commit and a number, specialists the
state of their engine, and the standing knows the best and the time that was used.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from random import Random
from typing import Any, NoReturn

from ratchet.engines import Failure
from ratchet.engines.preflight import NotReady
from ratchet.engines.registry import open_engine
from ratchet.kernel import (
    BudgetExceeded,
    Missing,
    Misuse,
    Outcome,
    RatchetError,
    RunStatus,
    StepStatus,
    TrialStatus,
    Waiting,
    with_hint,
)
from ratchet.ledger import Spender, change_run, change_step
from ratchet.ledger.research import get_standing, set_baseline
from ratchet.ledger.runs import close_attempt, get_run, list_steps, unended_attempt
from ratchet.ledger.trial_pages import in_flight, keep_counts, latest_trials, trial_origins
from ratchet.ledger.trials import Ending, Submission, Trial, end_trial, find_trial, get_trial, open_trial
from ratchet.ledger.usage import check
from ratchet.placement import Placement
from ratchet.research.campaign import Campaign, Opener, open_campaign
from ratchet.research.decision import Champion, MeasuredBaseline, calibrate
from ratchet.research.measurement.result import Unmeasured
from ratchet.research.novelty import IDEAS
from ratchet.research.scheduler import Lane, SessionScheduler, take_turn
from ratchet.research.session import SessionEnd, hold_session
from ratchet.research.strategy import WITHOUT_MEASUREMENTS
from ratchet.research.tasks import initial_files
from ratchet.research.trial import finish_trial, name_commit, show_best
from ratchet.runtime import JobContext, complete_run, configured_budgets, enter_run

_AUTHOR = "baseline"
_CHEAP_MS = 10_000


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
        best, first = get_trial(tx, campaign.run_id, standing.best), get_trial(tx, campaign.run_id, 0)
        campaign.keeps = keep_counts(tx, [campaign.run_id])[campaign.run_id]
    campaign.noise = MeasuredBaseline.of(standing.baseline).noise
    assert best.commit is not None
    campaign.champion = Champion.of(best.number, best.commit, best.measurements)
    campaign.submitted, campaign.draws = standing.trials, standing.next_number
    task = campaign.task
    if first.wall_ms and first.wall_ms <= _CHEAP_MS:
        # An agent's whole prompt is paid again for each session.
        task.trials_per_session = max(task.trials_per_session, task.trials_when_cheap)
    await asyncio.to_thread(_remember, campaign)
    # What this strategy cannot do with this task is said before anything is spent.
    campaign.chosen(Random(0))
    await asyncio.to_thread(show_best, campaign.repository, lambda: campaign.best.commit)


def _remember(campaign: Campaign) -> None:
    """What strategies know follows from the rows of trials, and from nothing else."""
    with campaign.job.ledger.read() as tx:
        origins = trial_origins(tx, campaign.run_id, measured=campaign.strategy not in WITHOUT_MEASUREMENTS)
    for each in origins:
        campaign.population.add(each)
    novelty, repository = campaign.novelty, campaign.repository
    novelty.add(novelty.read_commit(repository, campaign.baseline_commit).code, 0)
    novelty.load(origins)
    if novelty.compares_ideas:
        _remember_ideas(campaign)


def _remember_ideas(campaign: Campaign) -> None:
    novelty, repository = campaign.novelty, campaign.repository
    with campaign.job.ledger.read() as tx:
        last = latest_trials(tx, campaign.run_id, limit=IDEAS)
    for trial in reversed(last):
        if trial.number and trial.commit is not None:
            before, after = (
                novelty.read_commit(repository, commit).texts for commit in (f"{trial.commit}^", trial.commit)
            )
            novelty.add_idea(trial.number, novelty.idea(trial.hypothesis, before, after))


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
    began = time.monotonic()
    baseline = await _measured(campaign)
    took = round((time.monotonic() - began) * 1000 / len(baseline.samples))
    with campaign.job.write() as tx:
        set_baseline(tx, campaign.run_id, baseline.record())
        ending = Ending(
            status=TrialStatus.BASELINE,
            reason=baseline.note,
            score=baseline.mean,
            measurements=baseline.record(),
            evaluator=campaign.meter.hash,
            wall_ms=0 if campaign.given_baseline is not None else took,
        )
        end_trial(tx, campaign.run_id, first.number, ending)
        campaign.count_time(tx)


async def _measured(campaign: Campaign) -> MeasuredBaseline:
    """Measure the baseline, unless the person or the task gave its score.

    Raises `Misuse` for a recipe that cannot be measured. A machine that spoils it is no misuse: the job is tried again.
    """
    task, given = campaign.task, campaign.given_baseline
    if given is not None:
        return MeasuredBaseline((given,), note="given, not measured")
    try:
        await campaign.meter.preflight(campaign.baseline_commit, campaign.baseline_commit)
        return await calibrate(campaign.meter, campaign.baseline_commit, task.keep)
    except Unmeasured as unmeasured:
        infra = unmeasured.status is TrialStatus.INFRA_ERROR
        raise (RatchetError if infra else Misuse)(
            f"the baseline of {task.name} cannot be measured ({unmeasured.status}): {unmeasured.reason}",
            hint="fix the task; `ratchet research check` shows what is wrong with it",
        ) from unmeasured


class ResearchBlocked(Waiting):
    """No trial can be made until a person has changed something; the run says what."""


async def research_run(
    job: JobContext, opener: Opener = open_engine, placement: Placement | None = None
) -> Any:
    """Improve a recipe until a stop is reached. Trials are measured by `placement`, or as the settings say."""
    with job.write() as tx:
        run = get_run(tx, job.run_id)
        if run.status is RunStatus.COMPLETED:
            # The process that completed it died before its job had ended.
            return run.result
        run = enter_run(tx, job.run_id)
    async with contextlib.AsyncExitStack() as stack:
        try:
            campaign = await stack.enter_async_context(open_campaign(job, run, opener, placement))
        except (NotReady, Missing) as error:
            _block(job, with_hint(error))
        await begin(campaign)
        await _adopt(campaign)
        stopped = await _work(campaign)
        return _complete(campaign, stopped)


async def _adopt(campaign: Campaign) -> None:
    """Bring to an end what a process that died had begun to measure."""
    with campaign.job.ledger.read() as tx:
        left = in_flight(tx, campaign.run_id)
    for trial in left:
        await finish_trial(campaign, trial)


async def _work(campaign: Campaign) -> str:
    """Hold sessions side by side until there is a reason to stop."""
    scheduler = SessionScheduler(campaign)
    try:
        async with asyncio.TaskGroup() as workers:
            for number in range(campaign.parallel):
                workers.create_task(_hold_sessions(scheduler, number))
    except BaseExceptionGroup as group:
        # One reason is enough: the others were cancelled because of it.
        raise group.exceptions[0] from None
    assert scheduler.stopped is not None
    if scheduler.out_of_budget:
        # Those beside the session that met the limit have ended since, and were paid as well.
        try:
            _check_budget(campaign)
        except BudgetExceeded as spent:
            return str(spent)
    return scheduler.stopped


async def _hold_sessions(scheduler: SessionScheduler, number: int) -> None:
    campaign = scheduler.campaign
    if number:
        await scheduler.wait(campaign.job.runtime.settings.research.stagger_seconds * number)
    while (lane := await scheduler.take_lane()) is not None:
        # A search that has settled begins again, and needs no rest before it.
        quick = campaign.engine(lane.specialist).capabilities.learns_scores
        problem: str | None = None
        refused: str | None = None
        asked: float | None = None
        held: SessionEnd | None = None
        try:
            turn = await take_turn(campaign, lane)
            if isinstance(turn, str):
                await scheduler.stop(turn)
            else:
                held = await hold_session(campaign, turn)
                problem = held.problem
                asked = held.failed.retry_after if held.failed is not None else None
                quick = quick or _used_up(held)
                _check_engine(campaign, held)
        except BudgetExceeded as spent:
            if spent.held:
                refused = str(spent)
            else:
                scheduler.out_of_budget = True
                await scheduler.stop(str(spent))
        finally:
            pause = await scheduler.leave_lane(
                lane,
                problem=problem,
                quick=quick,
                asked=asked,
                refused=refused,
                used=None if held is None else held.used,
                trials=held.trials if held is not None else (),
            )
        if problem is not None and scheduler.stopped is None:
            _check_sessions(scheduler, problem)
            if pause:
                _tell_pause(campaign, lane, problem, pause)
        _check_machine(campaign)


def _tell_pause(campaign: Campaign, lane: Lane, problem: str, seconds: float) -> None:
    """An event for watchers: a specialist whose session failed begins another one later."""
    with campaign.job.write() as tx:
        data = {"specialist": lane.specialist.name, "seconds": round(seconds, 3), "reason": problem}
        tx.event("research.pause", message=problem, run_id=campaign.run_id, data=data)


def _check_engine(campaign: Campaign, held: SessionEnd) -> None:
    """Block the run when every further session would fail as this one did. Raises `ResearchBlocked`.

    Raises `BudgetExceeded` when a session has used up its share, and with it all that the run had.
    """
    if _used_up(held):
        _check_budget(campaign)
    if held.failed is not None and held.failed.failure.is_permanent:
        _block(campaign.job, with_hint(held.failed))


def _check_sessions(scheduler: SessionScheduler, problem: str) -> None:
    """Block the run when no specialist gets anywhere any more. Raises `ResearchBlocked`."""
    most = scheduler.campaign.job.runtime.settings.research.session_failures
    if scheduler.fails_everywhere(most):
        _block(
            scheduler.campaign.job,
            f"{most} sessions of each specialist in a row failed or submitted nothing, the last one with: {problem}; "
            "fix the cause, then resume the run",
        )


def _check_budget(campaign: Campaign) -> None:
    """Raises `BudgetExceeded` with all that was counted until now."""
    run = campaign.run
    with campaign.job.ledger.read() as tx:
        check(tx, Spender(None, run.id, run.project_id), configured_budgets(campaign.job.runtime.settings))


def _used_up(held: SessionEnd) -> bool:
    return held.failed is not None and held.failed.failure is Failure.BUDGET


def _check_machine(campaign: Campaign) -> None:
    """Block the run when measuring does not work any more. Raises `ResearchBlocked`."""
    most = campaign.job.runtime.settings.research.infra_errors
    if campaign.infra_in_a_row < most:
        return
    _block(
        campaign.job, f"{most} trials in a row could not be measured; fix the machine, then resume the run"
    )


def _block(job: JobContext, reason: str) -> NoReturn:
    with job.write() as tx:
        for step in list_steps(tx, job.run_id):
            if step.status is StepStatus.RUNNING:
                change_step(tx, step.id, StepStatus.BLOCKED, reason=reason)
        change_run(tx, job.run_id, RunStatus.BLOCKED, reason=reason)
    raise ResearchBlocked(reason)


def _complete(campaign: Campaign, stopped: str) -> Any:
    with campaign.job.write() as tx:
        campaign.count_time(tx)
        for step in list_steps(tx, campaign.run_id):
            if not step.status.final:
                # A lane whose process died, and that nobody needed again.
                left = unended_attempt(tx, step.id)
                if left is not None:
                    close_attempt(tx, left, Outcome.ERROR, "interrupted: its process ended")
                change_step(tx, step.id, StepStatus.COMPLETED)
        standing = get_standing(tx, campaign.run_id)
        result = {
            "stopped": stopped,
            "trials": standing.trials,
            "best": {"exp_id": standing.best_exp_id, "score": standing.best_score},
        }
        complete_run(tx, campaign.run_id, result)
    return result
