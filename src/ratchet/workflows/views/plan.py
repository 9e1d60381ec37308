"""A workflow before it runs: its waves, what each step needs and calls, and how long it took before."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from ratchet.flowkit.graph import dependencies, waves
from ratchet.kernel import RunStatus
from ratchet.ledger.runs import latest_steps, list_runs
from ratchet.workflows.profile import add_up, longest_way
from ratchet.workflows.views.runs import RUN_KIND

if TYPE_CHECKING:
    from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
    from ratchet.ledger import Transaction

_LOOKED_AT = 5
_MOST_ROWS = 2_000


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
        "parallel_group": step.parallel_group,
        "estimated_ms": took,
    }


def _times(tx: Transaction, name: str) -> dict[str, float]:
    """How long each step took, where it was really run."""
    found: dict[str, list[float]] = {}
    for run in list_runs(tx, kind=RUN_KIND, name=name, status=RunStatus.COMPLETED, limit=_LOOKED_AT):
        for step, taken in add_up(latest_steps(tx, run.id, limit=_MOST_ROWS)).items():
            if taken.calls > taken.cached:
                found.setdefault(step, []).append(taken.span_ms)
    return {step: round(median(spans), 3) for step, spans in found.items()}


def _longest(edges: Mapping[str, frozenset[str]], took: Mapping[str, float]) -> float | None:
    """How long the critical path takes; nothing while a step has never been timed."""
    return sum(took[step] for step in longest_way(edges, took)) if edges.keys() <= took.keys() else None
