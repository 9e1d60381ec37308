"""A workflow that is called as a tool, outside of a run or in place of one that failed: in this process, to its end.

Its calls are on record like all others. Nothing else of it is: if the process dies, the call has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ratchet.flowkit.errors import SpecError, StepFailed
from ratchet.flowkit.execution import Call, Result
from ratchet.flowkit.executor import execute
from ratchet.flowkit.reading import read_spec
from ratchet.flowkit.spec import StepType, WorkflowSpec
from ratchet.tools.call import Called, Occasion, ToolFailed, ToolUse
from ratchet.tools.constraints import TooOften
from ratchet.tools.kept_servers import KeptServers
from ratchet.tools.using import on_record
from ratchet.workflows.running.plan import RunPlan
from ratchet.workflows.running.preparing import BadWorkflow, prepare


def with_workflows(occasion: Occasion) -> Occasion:
    """The occasion, at which tools that are workflows can be called as well."""

    async def run(spec: Mapping[str, Any], values: Mapping[str, Any]) -> Called:
        return await _run(spec, values, occasion)

    return replace(occasion, run_workflow=run)


async def _run(spec: Mapping[str, Any], values: Mapping[str, Any], occasion: Occasion) -> Called:
    try:
        whole = read_spec(spec)
        plan = await asyncio.to_thread(prepare, occasion.runtime, whole, values, cached=False, spread=False)
    except (BadWorkflow, SpecError) as error:
        raise ToolFailed("; ".join(error.problems), final=True) from error
    async with contextlib.aclosing(KeptServers()) as servers:
        # Answers are those of one call, and there may be many in here.
        caller = _ToolCaller(plan, replace(occasion, servers=servers, answers=None))
        done = await execute(plan.spec, plan.inputs, caller, guarded=False)
    use = ToolUse(cost_microusd=caller.cost_microusd, tokens=caller.tokens)
    if done.status != "completed":
        raise ToolFailed(f"step {done.error}", use=use)
    return Called(dict(done.outputs), use, simulated=caller.simulated)


class _ToolCaller:
    """See `flowkit.Caller`."""

    def __init__(self, plan: RunPlan, occasion: Occasion) -> None:
        self._plan = plan
        self._occasion = occasion
        self.simulated = False
        self.cost_microusd = 0
        self.tokens = 0

    async def call(self, call: Call) -> Result:
        if call.step.step_type is StepType.APPROVAL:
            raise StepFailed(
                "asks a person, for whom the call of a tool cannot wait",
                final=True,
                hint="run the workflow by `ratchet workflow run`",
            )
        try:
            called = await self._carry_out(call)
        except ToolFailed as failed:
            self._count(failed.use)
            raise StepFailed(
                str(failed), final=failed.final, metrics=asdict(failed.use), hint=failed.hint
            ) from failed
        except TooOften as error:
            raise StepFailed(str(error), hint=error.hint) from error
        self._count(called.use)
        self.simulated |= called.simulated
        return Result(called.value, asdict(called.use))

    async def sub_workflow(self, call: Call) -> WorkflowSpec:
        # All of them were put in their places by `prepare`.
        raise StepFailed(f"the workflow {call.step.workflow_path} is not part of this call", final=True)

    def fallback(self, call: Call) -> str | None:
        return self._plan.fallback(call)

    async def _carry_out(self, call: Call) -> Called:
        work = self._plan.work(call)
        occasion = replace(self._occasion, seconds=min(call.step.timeout, self._occasion.seconds))
        if work.fixed is None:
            return await work.carry_out(call, occasion)
        fixed = work.fixed
        return await on_record(
            lambda: work.carry_out(call, occasion),
            fixed.tool,
            fixed.tool_id,
            fixed.version_id,
            call.values,
            occasion,
        )

    def _count(self, use: ToolUse) -> None:
        self.cost_microusd += use.cost_microusd
        self.tokens += use.tokens
