"""Workflows for a page or a terminal: what a plan would do, and a run with its steps and its critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from ratchet.flowkit.graph import dependencies, waves
from ratchet.flowkit.reader import read_spec
from ratchet.kernel import RunStatus, StepStatus, iso
from ratchet.ledger.runs import find_step, latest_attempts, latest_steps, list_runs
from ratchet.tools.definition import full_name
from ratchet.workflows.operations import RUN_KIND, StepTimes
from ratchet.workflows.profile import add_up, longest_way, profile_rows, top_step
from ratchet.workflows.runs.plan import tools_of_steps
from ratchet.workflows.runs.results import step_record

if TYPE_CHECKING:
    from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
    from ratchet.ledger import Run, Step, Transaction

_MOST_ROWS = 2_000
_LOOKED_AT, _MOST_PARTS = 500, 100
_MOST_ATTEMPTS = 20
_KEPT = ("value", "artifact", "bytes")
_MEASURES = (
    "calls",
    "wall_ms",
    "cpu_ms",
    "peak_bytes",
    "cost_microusd",
    "tokens",
    "unpriced_tokens",
    "cached",
    "failed",
    "tries",
    "time_share",
    "cost_share",
    "path_share",
)
_TIMED_RUNS = 5


def plan_record(tx: Transaction | None, spec: WorkflowSpec) -> dict[str, Any]:
    """What a valid workflow would do. Times are medians of its last runs, and there are none without a ledger.

    `estimated_ms` is that of the critical path: how long it takes where everything that can run at once does.
    """
    took = {} if tx is None else _times(tx, spec.workflow_id)
    edges = dependencies(spec)
    turns = waves(spec)
    return {
        "workflow": spec.workflow_id,
        "version": spec.version,
        "description": spec.description,
        "inputs": {each.name: _input(each.type, each.required, each.default) for each in spec.inputs},
        "outputs": {each.name: each.source_reference for each in spec.outputs},
        "waves": turns,
        "steps": [_step(step, sorted(edges[step.step_id]), took.get(step.step_id)) for step in spec.steps],
        "estimated_ms": _longest(edges, took),
    }


def _input(type: str, required: bool, default: Any) -> dict[str, Any]:
    return {"type": type, "required": required, "default": default}


def _step(step: WorkflowStep, needs: list[str], took: float | None) -> dict[str, Any]:
    return {
        "step": step.step_id,
        "type": str(step.step_type),
        "tool": step.tool_name or step.tool_path or step.workflow_path,
        "needs": needs,
        "when": step.when,
        "for_each": step.for_each,
        "repeat": None if step.repeat is None else {"until": step.repeat.until, "limit": step.repeat.limit},
        "parallel_group": step.parallel_group,
        "estimated_ms": took,
    }


def _times(tx: Transaction, name: str) -> dict[str, float]:
    """How long each step took, where it was really run."""
    found: dict[str, list[float]] = {}
    for run in list_runs(tx, kind=RUN_KIND, name=name, status=RunStatus.COMPLETED, limit=_TIMED_RUNS):
        for step, taken in add_up(latest_steps(tx, run.id, limit=_MOST_ROWS)).items():
            if taken.calls > taken.cached:
                found.setdefault(step, []).append(taken.span_ms)
    return {step: round(median(spans), 3) for step, spans in found.items()}


def _longest(edges: Mapping[str, frozenset[str]], took: Mapping[str, float]) -> float | None:
    """How long the critical path takes; nothing while a step has never been timed."""
    return sum(took[step] for step in longest_way(edges, took)) if edges.keys() <= took.keys() else None


def progress(tx: Transaction, run: Run) -> dict[str, Any]:
    """The steps of the workflow that a run runs, in the order of the file. Of a list and of a workflow inside, the
    parts are added up; of very many only the last are, which `truncated` says.
    """
    rows = latest_steps(tx, run.id, limit=_MOST_ROWS)
    truncated = len(rows) == _MOST_ROWS
    spec = read_spec(run.spec["workflow"])
    found = profile_rows([run], spec, [rows], truncated=truncated)
    needs = dependencies(spec)
    measured = {each.step: each for each in found.steps}
    parts: dict[str, list[Step]] = defaultdict(list)
    for row in rows:
        parts[top_step(row.name)].append(row)
    steps = []
    on_path = frozenset(found.critical_path)
    for step in spec.steps:
        own = next((row for row in parts[step.step_id] if row.name == step.step_id), None)
        if own is None and truncated:
            own = find_step(tx, run.id, step.step_id)
        steps.append(
            {
                **_planned(step, sorted(needs[step.step_id])),
                **_state(own, parts[step.step_id]),
                **_measured(measured.get(step.step_id)),
                "on_path": step.step_id in on_path,
            }
        )
    return {
        "steps": steps,
        "critical_path": [
            {"step": name, "wall_ms": measured[name].wall_ms, "share": measured[name].path_share}
            for name in found.critical_path
        ],
        "path_ms": found.path_ms,
        "wall_ms": found.wall_ms,
        "cost_microusd": found.cost_microusd,
        "tokens": found.tokens,
        "unpriced_tokens": found.unpriced_tokens,
        "truncated": truncated,
    }


def one_step(tx: Transaction, run_id: int, name: str) -> dict[str, Any] | None:
    """What became of a step, or of a part of one such as `translate[3]`; None if it has not begun.

    `kept` is its value as the ledger keeps it, and `parts` are the last of what it holds.
    """
    row = find_step(tx, run_id, name)
    if row is None:
        return None
    inside = [
        each
        for each in latest_steps(tx, run_id, limit=_LOOKED_AT)
        if each.name != name and each.name.startswith((f"{name}[", f"{name}/"))
    ]
    return {
        "name": row.name,
        **step_record(row),
        "spec": row.spec,
        "kept": {key: value for key, value in (row.result or {}).items() if key in _KEPT},
        "created_at": iso(row.created_at),
        "ended_at": None if row.ended_at is None else iso(row.ended_at),
        "attempts": [
            {"id": each.id, "number": each.number, "outcome": each.outcome, "reason": each.reason}
            for each in latest_attempts(tx, row.id, limit=_MOST_ATTEMPTS)
        ],
        "parts": [{"name": each.name, **step_record(each)} for each in reversed(inside[:_MOST_PARTS])],
        "more_parts": max(0, len(inside) - _MOST_PARTS),
    }


def _planned(step: WorkflowStep, needs: list[str]) -> dict[str, Any]:
    return {
        "step": step.step_id,
        "type": str(step.step_type),
        "tool": step.tool_name or step.tool_path or step.workflow_path,
        "description": step.description,
        "needs": needs,
    }


def _state(own: Step | None, parts: Sequence[Step]) -> dict[str, Any]:
    """How far a step is: as its own row says, or as its parts do while it has none."""
    others = sum(row is not own for row in parts)
    if own is not None:
        shown = step_record(own)
        return {"status": shown["status"], "reason": shown["error"] or shown["reason"], "parts": others}
    status = StepStatus.RUNNING if parts else StepStatus.PENDING
    return {"status": str(status), "reason": None, "parts": others}


def _measured(found: StepTimes | None) -> Mapping[str, Any]:
    if found is None:
        return dict.fromkeys(_MEASURES)
    taken = asdict(found)
    return {name: taken[name] for name in _MEASURES}


def tools_of_run(tx: Transaction, run: Run) -> dict[str, str]:
    """The full names of the tools that the steps of a run call, by the names that they use. Those in files beside a
    workflow can be reached from there only, and have none."""
    return {
        name: full_name(row.name, row.folder)
        for name, row in tools_of_steps(tx, run).items()
        if not row.folder or full_name(row.name, row.folder) != row.name
    }
