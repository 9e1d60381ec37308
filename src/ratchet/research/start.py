"""Starting a research run: everything is looked at before anything is recorded."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.engines.preflight import require_engines
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Limits, Misuse, NotFound, RunId, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.research import find_research, get_standing, open_research
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import kept_scores
from ratchet.ledger.usage import account, set_budget
from ratchet.research.adapter import TaskAdapter
from ratchet.research.campaign import (
    ResearchPlan,
    RunChoices,
    Stops,
    check_name,
    open_specialist,
    record_task,
    roster_of,
    task_directory,
    task_of,
)
from ratchet.research.jobs import KIND
from ratchet.research.measurement.machine import Machine
from ratchet.research.operations import LARGEST_SEED, POLICIES
from ratchet.research.simulation import compared
from ratchet.research.strategy import DEFAULT, find_strategy
from ratchet.research.tasks import find_task, pin_task, task_hash
from ratchet.research.views._status import Comparison
from ratchet.runtime import Runtime, configured_budgets, resume_run, start_run


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchRequest(RunChoices):
    """A run as a person asks for it. `tokens` and `cost_usd` become a strict budget of the run."""

    task: str
    variant: str | None = None
    name: str | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    simulated: bool = False

    @property
    def limits(self) -> Limits | None:
        """The budget that is given with the run; without one the configured budget of a run is in force."""
        if self.tokens is None and self.cost_usd is None:
            return None
        return Limits(tokens=self.tokens, cost_usd=self.cost_usd)


def check_research(
    runtime: Runtime, wanted: ResearchRequest, *, find: Callable[[str, str | None], TaskAdapter] = find_task
) -> None:
    """Look whether the engines of a run could work here and now, before it is begun.

    Raises `NotReady`, `Missing` for data, a Python or a GPU that is not here, and `Misuse` for what can never work.
    `find` is as in `start_research`.
    """
    task = find(wanted.task, wanted.variant)
    _plan(wanted, task)
    Machine(task, runtime.home)
    _check_engines(runtime, wanted, task, wanted.limits)


def check_resumed(runtime: Runtime, run_id: int) -> None:
    """The same for a run that there is, before it is resumed."""
    with runtime.ledger.read() as tx:
        run = get_run(tx, run_id)
        limits = account(tx, "run", run_id, configured_budgets(runtime.settings)).limits
    if run.status not in (RunStatus.PAUSED, RunStatus.BLOCKED):
        return
    try:
        task = task_of(runtime.ledger, runtime.home, run)
    except NotFound:
        # Only the machine that works on it has the copy of its task.
        return
    _check_engines(runtime, ResearchPlan.of(run.spec), task, limits)


def _check_engines(runtime: Runtime, chosen: RunChoices, task: TaskAdapter, limits: Limits | None) -> None:
    wanted = {(chosen.engine or each.engine, each.model) for each in roster_of(chosen, task)}
    for name in {engine for engine, _ in wanted}:
        open_specialist(name, EngineContext(runtime.settings, runtime.home, os.environ), task)
    require_engines(runtime, wanted, limits=limits)


def start_research(
    runtime: Runtime,
    wanted: ResearchRequest,
    *,
    actor: str = "ratchet",
    request_id: str | None = None,
    find: Callable[[str, str | None], TaskAdapter] = find_task,
) -> RunId:
    """Pin the task and enqueue the run. Raises `Misuse` for what can never work.

    `find` says which tasks the caller may name.
    """
    task = find(wanted.task, wanted.variant)
    plan = _plan(wanted, task)
    if wanted.engine is not None:
        open_specialist(wanted.engine, EngineContext(runtime.settings, runtime.home, os.environ), task)
    pin_task(task, task_directory(runtime.home, plan.task_hash), sha256=plan.task_hash)
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        run_id = start_run(
            tx,
            runtime,
            KIND,
            kind="research",
            name=wanted.name or task.name,
            spec=plan.spec(),
            simulated=wanted.simulated,
        )
        record_task(tx, runtime.ledger, runtime.home, run_id, plan.task_hash)
        open_research(
            tx,
            run_id,
            task=task.name,
            score_field=task.score_field,
            direction=task.direction,
            keep_policy=plan.keep_policy or task.keep.policy,
        )
        if wanted.limits is not None:
            set_budget(tx, "run", run_id, wanted.limits)
    return run_id


def _plan(wanted: ResearchRequest, task: TaskAdapter) -> ResearchPlan:
    known = {each.name for each in task.roster}
    for name in wanted.specialists:
        if name not in known:
            raise Misuse(
                f"the task {task.name} has no specialist {name!r}", hint=f"it has {', '.join(sorted(known))}"
            )
    if wanted.keep_policy is not None and wanted.keep_policy not in POLICIES:
        raise Misuse(f"there is no keep policy {wanted.keep_policy!r}", hint=f"use {' or '.join(POLICIES)}")
    if wanted.strategy is not None:
        find_strategy(wanted.strategy)
    if wanted.name is not None:
        check_name(wanted.name)
    if wanted.baseline_score is not None and not math.isfinite(wanted.baseline_score):
        raise Misuse(f"a baseline score of {wanted.baseline_score} cannot be beaten or missed")
    if wanted.baseline_score is not None and task.requires_calibrated_baseline:
        raise Misuse(
            f"the task {task.name} wants its baseline measured, not given", hint="leave out --baseline-score"
        )
    if not 0 <= wanted.seed <= LARGEST_SEED:
        raise Misuse(f"a seed of {wanted.seed} cannot be used", hint=f"use 0 to {LARGEST_SEED}")
    for what in ("trials", "hours", "hours_without_keep", "tokens", "cost_usd", "parallel"):
        value = getattr(wanted, what)
        if value is not None and not 0 < value < math.inf:
            raise Misuse(f"{what} must be above 0 and finite, not {value!r}")
    plan = ResearchPlan(
        task=wanted.task,
        task_hash=task_hash(task),
        task_root=str(task.root.resolve()),
        variant=task.variant,
        columns=task.columns,
        plain_baseline=task.plain_baseline,
        known_best=task.known_best,
        **{**wanted.chosen(), "strategy": wanted.strategy or DEFAULT},
    )
    if Stops.of(plan, task) == Stops() and wanted.tokens is None and wanted.cost_usd is None:
        raise Misuse(
            "nothing would ever stop this run", hint="give --trials, --hours, --tokens or --cost-usd"
        )
    return plan


def arms_of(task: str, arms: Sequence[str], seeds: int, **chosen: Any) -> list[ResearchRequest]:
    """The runs of a comparison: with each seed one of each arm, so that an interruption leaves all arms as far."""
    return [
        ResearchRequest(task=task, name=f"{Path(task).name} {arm} {seed}", strategy=arm, seed=seed, **chosen)
        for seed in range(seeds)
        for arm in arms
    ]


def begin_arm(
    runtime: Runtime,
    wanted: ResearchRequest,
    *,
    actor: str,
    request_id: str | None = None,
    find: Callable[[str, str | None], TaskAdapter] = find_task,
) -> RunId:
    """The run of an arm: one that was begun before with the same choices, resumed if need be, or a new one."""
    assert wanted.name is not None
    with runtime.ledger.read() as tx:
        try:
            known = get_run(tx, find_research(tx, wanted.name))
        except NotFound:
            known = None
    if known is not None and _same(known.spec, wanted, find(wanted.task, wanted.variant)):
        if known.status in (RunStatus.PAUSED, RunStatus.BLOCKED):
            with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
                resume_run(tx, runtime, known.id)
        if known.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            return known.id
    return start_research(runtime, wanted, actor=actor, request_id=request_id, find=find)


def _same(spec: Mapping[str, Any], wanted: ResearchRequest, task: TaskAdapter) -> bool:
    chosen = {**wanted.chosen(), "task_hash": task_hash(task)}
    # As it was stored.
    return all(spec.get(name) == value for name, value in json.loads(json.dumps(chosen)).items())


def compare_runs(tx: Transaction, wanted: Sequence[ResearchRequest], runs: Sequence[int]) -> Comparison:
    """The arms by the seeds of which all have ended. `runs` are those that were asked for, one by one."""
    trials = wanted[0].trials
    assert trials is not None
    curves: dict[str, list[list[float]]] = {str(each.strategy): [] for each in wanted}
    ended = {
        (str(each.strategy), each.seed): run
        for each, run in zip(wanted, runs, strict=True)
        if get_run(tx, run).status is RunStatus.COMPLETED
    }
    for seed in sorted({each.seed for each in wanted}):
        if all((arm, seed) in ended for arm in curves):
            for arm, found in curves.items():
                found.append(_curve(tx, ended[arm, seed], trials))
    direction = get_standing(tx, runs[0]).direction
    return compared(wanted[0].task, trials, curves, direction, left=len(runs) - len(ended))


def _curve(tx: Transaction, run_id: int, trials: int) -> list[float]:
    """What the best was after each trial, in the order in which trials were handed in."""
    kept = {
        each.number: each.score
        for each in kept_scores(tx, run_id, limit=trials + 1)
        if each.score is not None
    }
    best = kept[0]
    return [best := kept.get(number, best) for number in range(1, trials + 1)]
