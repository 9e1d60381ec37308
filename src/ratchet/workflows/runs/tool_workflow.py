"""A workflow that is called as a tool, outside of a run or in place of one that failed: in this process, to its end.

Its calls are on record like all others. Nothing else of it is: if the process dies, the call has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ratchet.flowkit.errors import SpecError, StepFailed, StepHeld
from ratchet.flowkit.execution import SIMULATED, WITHIN, Inside, Result, StepCall, StepError
from ratchet.flowkit.executor import execute
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool
from ratchet.tools.invocation import ToolRateLimited, on_record
from ratchet.tools.mcp_tools import KeptServers
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.runs.plan import FixedTool, RunPlan
from ratchet.workflows.runs.preparation import prepare


async def call_held(tool: Tool, call: StepCall, inside: Inside, occasion: Occasion) -> ToolResult:
    """What the tool answers whose workflow is run by `inside`. Raises `ToolCallFailed`, and `Held` where a person is
    waited for."""

    async def run(_: Mapping[str, Any], values: Mapping[str, Any]) -> ToolResult:
        end = await inside(values)
        if end is None:
            raise StepHeld(f"{call.name} holds a step that waits")
        taken = dict(end.metrics.get(WITHIN, {}))
        simulated = bool(taken.pop(SIMULATED, False))
        if isinstance(end, StepError):
            raise ToolCallFailed(end.reason, hint=end.hint, use=ToolUse(**taken))
        return ToolResult(end.value, ToolUse(**taken), simulated=simulated)

    return await call_tool(tool, call.values, replace(occasion, run_workflow=run))


def metrics_of(called: ToolResult) -> dict[str, Any]:
    """What the call of a step took."""
    return use_metrics(called.use) | ({SIMULATED: True} if called.simulated else {})


def use_metrics(use: ToolUse) -> dict[str, Any]:
    return {key: value for key, value in asdict(use).items() if value is not None}


def held_metrics(use: ToolUse, *, simulated: bool = False) -> dict[str, Any]:
    """The same for a step that holds others, which have metrics of their own."""
    taken = {key: value for key, value in use_metrics(use).items() if value and key != "wall_ms"}
    within = taken | ({SIMULATED: True} if simulated else {})
    return {WITHIN: within} if within else {}


def with_workflows(occasion: Occasion) -> Occasion:
    """The occasion, at which tools that are workflows can be called as well."""

    async def run(spec: Mapping[str, Any], values: Mapping[str, Any]) -> ToolResult:
        return await _run(spec, values, occasion)

    return replace(occasion, run_workflow=run)


async def _run(spec: Mapping[str, Any], values: Mapping[str, Any], occasion: Occasion) -> ToolResult:
    try:
        whole = read_spec(spec)
        plan = await asyncio.to_thread(prepare, occasion.runtime, whole, values, cached=False, spread=False)
    except (BadWorkflow, SpecError) as error:
        raise ToolCallFailed("; ".join(error.problems), final=True) from error
    async with contextlib.aclosing(KeptServers()) as servers:
        # Answers are those of one call, and there may be many in here.
        caller = _ToolCaller(plan, replace(occasion, servers=servers, answers=None))
        done = await execute(plan.spec, plan.inputs, caller, guarded=False)
    use = ToolUse(
        cost_microusd=caller.cost_microusd, tokens=caller.tokens, unpriced_tokens=caller.unpriced_tokens
    )
    if done.status == "held":
        held = next(f"{name}: {each.error}" for name, each in done.steps.items() if each.error)
        raise ToolCallFailed(f"step {held}", use=use, final=True, blocks=True)
    if done.status != "completed":
        raise ToolCallFailed(f"step {done.error}", use=use)
    return ToolResult(dict(done.outputs), use, simulated=caller.simulated)


class _ToolCaller:
    """See `flowkit.StepCaller`."""

    def __init__(self, plan: RunPlan, occasion: Occasion) -> None:
        self._plan = plan
        self._occasion = occasion
        self.simulated = False
        self.cost_microusd = 0
        self.tokens = 0
        self.unpriced_tokens = 0

    async def call(self, call: StepCall) -> Result:
        if call.step.step_type is StepType.APPROVAL:
            raise StepFailed(
                "asks a person, for whom the call of a tool cannot wait",
                final=True,
                hint="run the workflow by `ratchet workflow run`",
            )
        work = self._plan.work(call)
        occasion = self._occasion_of(call)
        called = await self._recorded(work.fixed, call, lambda: work.carry_out(call, occasion), use_metrics)
        # What a workflow inside this one takes is what its steps take.
        self._count(called.use)
        self.simulated |= called.simulated
        return Result(called.value, metrics_of(called))

    def _count(self, use: ToolUse) -> None:
        self.cost_microusd += use.cost_microusd
        self.tokens += use.tokens
        self.unpriced_tokens += use.unpriced_tokens

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        fixed = self._plan.held_tool(call)
        if fixed is None:
            return await inside(call.values)
        occasion = self._occasion_of(call)
        called = await self._recorded(
            fixed, call, lambda: call_held(fixed.tool, call, inside, occasion), held_metrics
        )
        return Result(called.value, held_metrics(called.use, simulated=called.simulated))

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        # All of them were put in their places by `prepare`.
        raise StepFailed(f"the workflow {call.step.workflow_path} is not part of this call", final=True)

    def fallback(self, call: StepCall) -> str | None:
        return self._plan.fallback(call)

    def _occasion_of(self, call: StepCall) -> Occasion:
        return replace(self._occasion, seconds=min(call.step.timeout, self._occasion.seconds))

    async def _recorded(
        self,
        fixed: FixedTool | None,
        call: StepCall,
        carry_out: Callable[[], Awaitable[ToolResult]],
        metrics: Callable[[ToolUse], dict[str, Any]],
    ) -> ToolResult:
        """Carry out a call, on record if it is one of a tool. Raises `StepFailed`."""
        try:
            if fixed is None or self._occasion.tried:
                return await carry_out()
            return await on_record(
                carry_out, fixed.tool, fixed.tool_id, fixed.version_id, call.values, self._occasion
            )
        except ToolCallFailed as failed:
            if not call.container:
                self._count(failed.use)
            raise StepFailed(
                str(failed),
                final=failed.final,
                metrics=metrics(failed.use),
                hint=failed.hint,
                blocks=failed.blocks,
            ) from failed
        except ToolRateLimited as error:
            raise StepFailed(str(error), hint=error.hint) from error
