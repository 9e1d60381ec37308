"""Looking whether the models of a workflow could be asked, before a run is begun. Each raises `NotReady`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ratchet.engines.engine import Failure
from ratchet.engines.preflight import NotReady, require_engines
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger.runs import list_runs
from ratchet.ledger.tools import get_tool
from ratchet.ledger.workflows import list_workflows
from ratchet.memory import MemoryFault, open_memory
from ratchet.runtime import Runtime
from ratchet.tools.definition import LlmBody
from ratchet.tools.models import model_of
from ratchet.workflows.evolution.subject import choose_subject
from ratchet.workflows.memory import find_plans
from ratchet.workflows.runs.plan import RunPlan

RUN_KIND = "workflow"
_LAST_RUNS = 20
_SAME = ("workflow", "inputs", "tools", "model")


def check_overseer(
    runtime: Runtime, sentence: str, *, reuse: bool, engine: str | None = None, model: str | None = None
) -> None:
    """Whether the overseer could be asked, unless a plan for this is remembered, which needs no model."""
    settings = runtime.settings.workflows
    try:
        require_engines(runtime, [(engine or settings.overseer, model or settings.model)])
    except NotReady:
        if not (reuse and _is_remembered(runtime, sentence)):
            raise


def check_workflow(runtime: Runtime, plan: RunPlan) -> None:
    """Whether the models could be asked that the steps of a run certainly ask.

    A run like one that was completed before is let continue without them: its answers may all be known.
    """
    engine = runtime.settings.workflows.llm
    try:
        require_engines(runtime, ((engine, model) for model in _models(runtime, plan, plan.spec)))
    except NotReady:
        if not (plan.cached and _was_completed(runtime, plan)):
            raise


def check_evolution(
    runtime: Runtime, tool_id: str, *, folder: str = "", engine: str | None = None, model: str | None = None
) -> None:
    """Whether a tool could be rewritten; raises also what `evolve_tool` raises."""
    settings = runtime.settings.workflows.evolution
    with runtime.ledger.read() as tx:
        choose_subject(tx, get_tool(tx, tool_id, folder=folder), cases=settings.cases, low=settings.low)
    require_engines(runtime, [(engine or settings.engine, model)])


def _models(runtime: Runtime, plan: RunPlan, spec: WorkflowSpec) -> Iterator[str | None]:
    """The model of each step that asks one, unless it is left out on a condition, or another tool can stand in."""
    for step in spec.steps:
        fixed = plan.tools.get((spec.workflow_id, step.tool_name or ""))
        tool = None if fixed is None else fixed.tool
        if step.when is not None or step.fallback_tool or (tool is not None and tool.fallback_tool):
            continue
        if step.workflow_spec is not None:
            yield from _models(runtime, plan, step.workflow_spec)
        elif tool is not None and tool.llm is not None:
            yield _model(runtime, tool.llm)
        elif tool is None and step.step_type is StepType.LLM_CALL:
            yield None


def _model(runtime: Runtime, body: LlmBody) -> str | None:
    try:
        return model_of(body, runtime.settings, os.environ)
    except Misuse as error:
        raise NotReady(str(error), hint=error.hint, failure=Failure.MISSING, is_local=True) from error


def _was_completed(runtime: Runtime, plan: RunPlan) -> bool:
    wanted = plan.data()
    with runtime.ledger.read() as tx:
        runs = list_runs(
            tx, kind=RUN_KIND, name=plan.spec.workflow_id, status=RunStatus.COMPLETED, limit=_LAST_RUNS
        )
    return any(all(run.spec.get(key) == wanted[key] for key in _SAME) for run in runs)


def _is_remembered(runtime: Runtime, sentence: str) -> bool:
    with runtime.ledger.read() as tx:
        if not list_workflows(tx, limit=1):
            # Every plan that is remembered was saved; and nothing is made of a memory that is not there yet.
            return False
    try:
        with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
            plans = find_plans(memory, sentence)
    except MemoryFault:
        # As when it is planned: a memory that is out of reach has no plan.
        return False
    return any(plan.exact for plan in plans)
