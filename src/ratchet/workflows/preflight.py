"""Looking whether a workflow could work, before a run is begun: its models, and the variables of its tools. Each raises
`NotReady`."""

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
from ratchet.tools.call import ToolCallFailed, variable
from ratchet.tools.definition import Tool
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
    """Whether the models could be asked that the steps of a run certainly ask, and its tools have their variables.

    A run like one that was completed before is let continue without them: its answers may all be known.
    """
    engine = runtime.settings.workflows.llm
    calls = [*_certain_calls(plan, plan.spec)]
    try:
        for tool in calls:
            _check_variables(runtime, tool)
        asked = [tool for tool in calls if tool is None or tool.llm is not None]
        require_engines(runtime, ((engine, _model(runtime, tool)) for tool in asked))
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


def _certain_calls(plan: RunPlan, spec: WorkflowSpec) -> Iterator[Tool | None]:
    """The tool of each step, or nothing for a plain question to a model, unless it is left out on a condition, or
    another tool can stand in."""
    for step in spec.steps:
        fixed = plan.tools.get((spec.workflow_id, step.tool_name or ""))
        tool = None if fixed is None else fixed.tool
        if step.when is not None or step.fallback_tool or (tool is not None and tool.fallback_tool):
            continue
        if step.workflow_spec is not None:
            yield from _certain_calls(plan, step.workflow_spec)
        elif tool is not None or step.step_type is StepType.LLM_CALL:
            yield tool


def _check_variables(runtime: Runtime, tool: Tool | None) -> None:
    if tool is None:
        return
    for name in tool.secrets:
        try:
            variable(name, runtime.settings.tools)
        except ToolCallFailed as failed:
            why = f"the tool {tool.id} cannot be called: {failed}"
            raise NotReady(why, hint=failed.hint, failure=Failure.MISSING, is_local=True) from failed


def _model(runtime: Runtime, tool: Tool | None) -> str | None:
    if tool is None or tool.llm is None:
        return None
    try:
        return model_of(tool.llm, runtime.settings, os.environ)
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
