"""Making a profile from what the ledger has about one run, or about the last runs of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ratchet.flowkit.graph import dependencies
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Run, Step, Transaction
from ratchet.ledger.runs import get_run, latest_steps, list_runs
from ratchet.workflows.profiling.advice import advise
from ratchet.workflows.profiling.path import longest_way
from ratchet.workflows.profiling.profile import Profile, StepProfile
from ratchet.workflows.profiling.taken import Taken, add_up

RUN_KIND = "workflow"
# So many rows are read at most, of one run and of all runs together.
_MOST_ROWS, _MOST_ROWS_EACH = 20_000, 2_000


@dataclass(frozen=True, slots=True)
class _Whole:
    """What the steps are parts of: so many runs, the time of all steps, that of the longest way, and all costs."""

    runs: int
    time: float
    path: float
    cost: float


def profile_run(tx: Transaction, run_id: int) -> Profile:
    """Where one run spent its time and money. Raises `NotFound`, and `Misuse` for a run that ran no workflow."""
    run = get_run(tx, run_id)
    if not _ran_workflow(run):
        raise Misuse(f"run {run_id} ({run.name}) did not run a workflow", hint="name a run of a workflow")
    return _profile(tx, [run], _MOST_ROWS)


def profile_rows(run: Run, spec: WorkflowSpec, rows: Sequence[Step], *, truncated: bool = False) -> Profile:
    """The same of a run whose workflow and steps the caller has read, without advice."""
    return _summed(spec, [run], [rows], truncated=truncated)


def profile_workflow(tx: Transaction, name: str, last: int = 20) -> Profile:
    """The same as a mean over the last runs of a workflow that have ended. Raises `NotFound` if there are none."""
    if last < 1:
        raise Misuse(f"the last {last} runs are none", hint="look at one or more")
    found = list_runs(tx, kind=RUN_KIND, name=name, limit=last)
    runs = [run for run in found if run.ended_at is not None and _ran_workflow(run)]
    if not runs:
        raise NotFound("ended run of workflow", name)
    return _profile(tx, runs, min(_MOST_ROWS_EACH, _MOST_ROWS // len(runs)))


def _ran_workflow(run: Run) -> bool:
    return run.kind == RUN_KIND and isinstance(run.spec, dict) and "workflow" in run.spec


def _profile(tx: Transaction, runs: Sequence[Run], most: int) -> Profile:
    rows = [latest_steps(tx, run.id, limit=most) for run in runs]
    # Of the workflow as its last run had it; what a step of an older one is not in it any more is left out.
    spec = read_spec(runs[0].spec["workflow"])
    found = _summed(spec, runs, rows, truncated=any(len(each) >= most for each in rows))
    return replace(found, advice=tuple(advise(tx, runs[0], found.steps)))


def _summed(
    spec: WorkflowSpec, runs: Sequence[Run], rows: Sequence[Sequence[Step]], *, truncated: bool
) -> Profile:
    taken = [add_up(each) for each in rows]
    by_step = {
        step.step_id: [each[step.step_id] for each in taken if step.step_id in each] for step in spec.steps
    }
    took = {name: fmean(each.span_ms for each in of_step) for name, of_step in by_step.items() if of_step}
    way = longest_way(dependencies(spec), took)
    on_way = frozenset(way)
    whole = _Whole(
        len(runs),
        time=sum(took.values()),
        path=sum(took.get(name, 0.0) for name in way),
        cost=sum(each.cost_microusd for of_step in by_step.values() for each in of_step),
    )
    steps = [
        _step(step, by_step[step.step_id], took[step.step_id], whole, on_path=step.step_id in on_way)
        for step in spec.steps
        if by_step[step.step_id]
    ]
    return Profile(
        workflow=spec.workflow_id,
        runs=tuple(run.id for run in runs),
        wall_ms=fmean((run.ended_at or run.updated_at) - run.created_at for run in runs),
        cost_microusd=sum(step.cost_microusd for step in steps),
        tokens=sum(step.tokens for step in steps),
        unpriced_tokens=sum(step.unpriced_tokens for step in steps),
        steps=tuple(steps),
        critical_path=tuple(name for name in way if name in took),
        path_ms=whole.path,
        truncated=truncated,
    )


def _step(
    step: WorkflowStep, taken: Sequence[Taken], wall_ms: float, whole: _Whole, *, on_path: bool
) -> StepProfile:
    calls = sum(each.calls for each in taken)
    measured = [each.cpu_ms for each in taken if each.cpu_ms is not None]
    peaks = [each.peak_bytes for each in taken if each.peak_bytes is not None]
    cost = sum(each.cost_microusd for each in taken)
    return StepProfile(
        step=step.step_id,
        tool=step.tool_name or step.tool_path or step.workflow_path,
        calls=calls / whole.runs,
        wall_ms=wall_ms,
        cpu_ms=fmean(measured) if measured else None,
        peak_bytes=max(peaks, default=None),
        cost_microusd=cost / whole.runs,
        tokens=sum(each.tokens for each in taken) / whole.runs,
        unpriced_tokens=sum(each.unpriced_tokens for each in taken) / whole.runs,
        cached=_part(sum(each.cached for each in taken), calls),
        failed=_part(sum(each.failed for each in taken), calls),
        tries=_part(sum(each.tries for each in taken), calls),
        time_share=_part(wall_ms, whole.time),
        cost_share=_part(cost, whole.cost),
        path_share=_part(wall_ms, whole.path) if on_path else 0.0,
    )


def _part(some: Any, whole: Any) -> float:
    return float(some) / float(whole) if whole else 0.0
