"""Making a profile from what the ledger has about one run, or about the last runs of a workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from ratchet.flowkit.graph import dependencies, levels
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
from ratchet.kernel import Misuse, NotFound, RatchetError, StepStatus
from ratchet.ledger import Run, Step, Transaction
from ratchet.ledger.runs import get_run, latest_steps, list_runs
from ratchet.ledger.tools import ToolRow, VersionRow, get_version
from ratchet.workflows.evolution.health import recent_scores, tool_of
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.operations import RUN_KIND, EvolveAdvice, StepTimes, WorkflowProfile
from ratchet.workflows.runs.plan import tools_of_steps

_ENDED = (StepStatus.COMPLETED, StepStatus.FAILED)


@dataclass(slots=True)
class StepUse:
    """One step of the workflow in one run. Times are milliseconds since 1970."""

    began: int | None = None
    ended: int | None = None
    wall_ms: float = 0.0
    cpu_ms: float | None = None
    peak_bytes: int | None = None
    cost_microusd: float = 0.0
    tokens: float = 0.0
    unpriced_tokens: float = 0.0
    calls: int = 0
    cached: int = 0
    failed: int = 0
    tries: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def span_ms(self) -> float:
        """How long it took. A step of one call took what its tool did: rows are written in batches, a little later."""
        if self.calls == 1 and len(self.names) == 1:
            return self.wall_ms
        if self.began is None or self.ended is None:
            return self.wall_ms
        return max(self.wall_ms if len(self.names) == 1 else 0.0, float(self.ended - self.began))


def add_up(rows: Iterable[Step]) -> dict[str, StepUse]:
    """By step of the workflow. Steps that never ran are not there."""
    found: dict[str, StepUse] = {}
    for row in rows:
        if row.status not in _ENDED:
            continue
        taken = found.setdefault(top_step(row.name), StepUse())
        taken.names.add(row.name)
        taken.began = row.created_at if taken.began is None else min(taken.began, row.created_at)
        if row.ended_at is not None:
            taken.ended = row.ended_at if taken.ended is None else max(taken.ended, row.ended_at)
        _add_call(taken, row, row.result or {})
    return found


def _add_call(taken: StepUse, row: Step, result: Mapping[str, Any]) -> None:
    metrics: Mapping[str, Any] = result.get("metrics") or {}
    if "wall_ms" not in metrics and not result.get("cached"):
        # A step that holds others calls nothing itself.
        taken.failed += int(row.status is StepStatus.FAILED and not taken.calls)
        return
    taken.calls += 1
    taken.failed += int(row.status is StepStatus.FAILED)
    taken.tries += int(result.get("tries") or 1)
    if result.get("cached"):
        # Its metrics are those of the call that was made long ago.
        taken.cached += 1
        return
    taken.wall_ms += float(metrics.get("wall_ms") or 0.0)
    taken.cost_microusd += float(metrics.get("cost_microusd") or 0)
    tokens = float(metrics.get("tokens") or 0)
    taken.tokens += tokens
    # Older metrics do not say: tokens that cost nothing had no price.
    taken.unpriced_tokens += float(
        metrics.get("unpriced_tokens", 0 if metrics.get("cost_microusd") else tokens)
    )
    if metrics.get("cpu_ms") is not None:
        taken.cpu_ms = (taken.cpu_ms or 0.0) + float(metrics["cpu_ms"])
    if metrics.get("peak_bytes") is not None:
        taken.peak_bytes = max(taken.peak_bytes or 0, int(metrics["peak_bytes"]))


def top_step(name: str) -> str:
    """The step of the workflow that a row belongs to: `report` for `report/draft[3]`."""
    return name.partition("/")[0].partition("[")[0]


def longest_way(edges: Mapping[str, Collection[str]], took: Mapping[str, float]) -> list[str]:
    """The steps, each of which waits for the one before, that take longest together. Shortening none of them
    makes the workflow no faster."""
    ends: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for level in levels(edges):
        for step in level:
            last = max(sorted(edges[step]), key=lambda other: ends.get(other, 0.0), default=None)
            before[step] = last
            ends[step] = took.get(step, 0.0) + (0.0 if last is None else ends[last])
    way: list[str] = []
    coming = max(ends, key=lambda step: ends[step], default=None)
    while coming is not None:
        way.append(coming)
        coming = before[coming]
    return way[::-1]


def advise(tx: Transaction, run: Run, steps: Sequence[StepTimes]) -> list[EvolveAdvice]:
    """The tools of a run's steps, the most valuable first: used much, and not good or much of the critical path."""
    tools = tools_of_steps(tx, run)
    found = []
    for step in steps:
        tool = tools.get(step.tool or "")
        if tool is not None and tool.called_id is not None:
            found.append(_advice(tx, tool, get_version(tx, tool.called_id), step))
    return sorted(found, key=lambda each: (-each.value, each.step))


def _advice(tx: Transaction, tool: ToolRow, version: VersionRow, step: StepTimes) -> EvolveAdvice:
    obstacle, scores = None, list[float]()
    try:
        definition = tool_of(tool, version)
        scores = recent_scores(tx, version.id, definition)
        parts_of(definition)
    except RatchetError as error:
        obstacle = str(error)
    if tool.pinned_id is not None:
        obstacle = f"the tool {tool.name} is pinned to {version.version}"
    quality = fmean(scores) if scores else 1.0
    value = version.calls * max(1.0 - quality, step.path_share)
    why = (
        f"{version.calls} calls with a mean score of {quality:.2f}; "
        f"step {step.step} is {step.path_share:.0%} of the critical path and {step.cost_share:.0%} of the cost"
    )
    return EvolveAdvice(
        tool.name,
        tool.folder,
        step.step,
        version.calls,
        quality,
        step.path_share,
        value,
        why,
        obstacle,
    )


# So many rows are read at most, of one run and of all runs together.
_MOST_ROWS, _MOST_ROWS_EACH = 20_000, 2_000


@dataclass(frozen=True, slots=True)
class _Whole:
    """What the steps are parts of: so many runs, the time of all steps, that of the critical path, and all costs."""

    runs: int
    time: float
    path: float
    cost: float


def profile_run(tx: Transaction, run_id: int) -> WorkflowProfile:
    """Where one run spent its time and money. Raises `NotFound`, and `Misuse` for a run that ran no workflow."""
    run = get_run(tx, run_id)
    if not _ran_workflow(run):
        raise Misuse(f"run {run_id} ({run.name}) did not run a workflow", hint="name a run of a workflow")
    return _profile(tx, [run], _MOST_ROWS)


def profile_rows(
    runs: Sequence[Run], spec: WorkflowSpec, rows: Sequence[Sequence[Step]], *, truncated: bool = False
) -> WorkflowProfile:
    """The same of runs whose workflow and steps, run by run, the caller has read, without advice."""
    return _summed(spec, runs, rows, truncated=truncated)


def profile_workflow(tx: Transaction, name: str, last: int = 20) -> WorkflowProfile:
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


def _profile(tx: Transaction, runs: Sequence[Run], most: int) -> WorkflowProfile:
    rows = [latest_steps(tx, run.id, limit=most) for run in runs]
    # Of the workflow as its last run had it; what a step of an older one is not in it any more is left out.
    spec = read_spec(runs[0].spec["workflow"])
    found = _summed(spec, runs, rows, truncated=any(len(each) >= most for each in rows))
    return replace(found, advice=tuple(advise(tx, runs[0], found.steps)))


def _summed(
    spec: WorkflowSpec, runs: Sequence[Run], rows: Sequence[Sequence[Step]], *, truncated: bool
) -> WorkflowProfile:
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
    return WorkflowProfile(
        workflow=spec.workflow_id,
        runs=tuple(run.id for run in runs),
        wall_ms=fmean((run.ended_at or run.updated_at) - run.created_at for run in runs),
        cost_microusd=sum(step.cost_microusd for step in steps),
        tokens=sum(step.tokens for step in steps),
        unpriced_tokens=sum(step.unpriced_tokens for step in steps),
        steps=tuple(steps),
        critical_path=tuple(name for name in way if name in took),
        path_ms=whole.path,
        advice=(),
        truncated=truncated,
    )


def _step(
    step: WorkflowStep, taken: Sequence[StepUse], wall_ms: float, whole: _Whole, *, on_path: bool
) -> StepTimes:
    calls = sum(each.calls for each in taken)
    measured = [each.cpu_ms for each in taken if each.cpu_ms is not None]
    peaks = [each.peak_bytes for each in taken if each.peak_bytes is not None]
    cost = sum(each.cost_microusd for each in taken)
    return StepTimes(
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
