"""Tools that are workflows, where a step holds the workflow itself.

Its steps are those of the run, as durable as all others. What the tool declares still counts: what may go in and come
out, how long it may take, and who is asked before and told after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ratchet.flowkit.errors import StepHeld
from ratchet.flowkit.execution import SIMULATED, WITHIN, Inside, StepCall, StepError
from ratchet.tools.call import Occasion, ToolFailed, ToolResult, ToolUse
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool


async def call_held(tool: Tool, call: StepCall, inside: Inside, occasion: Occasion) -> ToolResult:
    """What the tool answers whose workflow is run by `inside`. Raises `ToolFailed`, and `Held` where a person is
    waited for."""

    async def run(_: Mapping[str, Any], values: Mapping[str, Any]) -> ToolResult:
        end = await inside(values)
        if end is None:
            raise StepHeld(f"{call.name} holds a step that waits")
        taken = dict(end.metrics.get(WITHIN, {}))
        simulated = bool(taken.pop(SIMULATED, False))
        if isinstance(end, StepError):
            raise ToolFailed(end.reason, hint=end.hint, use=ToolUse(**taken))
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
