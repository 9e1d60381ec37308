"""Callers for tests of the executor: plain functions in the place of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Inside, Result, StepCall, StepError
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep

Work = Callable[..., Any]


@dataclass
class Functions:
    """Calls the function of the step's tool with its values; a plain exception is a failed try.

    `order` tells what began and what ended, in that order.
    """

    tools: Mapping[str, Work]
    workflows: Mapping[str, WorkflowSpec] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def call(self, call: StepCall) -> Result:
        self.order.append(f"{call.name} begins")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            done = self.tools[call.tool or ""](**call.values)
            value = await done if isinstance(done, Awaitable) else done
        except (ValueError, KeyError) as error:
            raise StepFailed(f"{type(error).__name__}: {error}") from error
        finally:
            self.at_once -= 1
        self.order.append(f"{call.name} ends")
        return Result(value)

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        return await inside(call.values)

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        return self.workflows[call.step.workflow_path or ""]

    def fallback(self, call: StepCall) -> str | None:
        return call.step.fallback_tool


def step(step_id: str, tool: str | None = "echo", **more: Any) -> WorkflowStep:
    """A step that calls `tool`, by default with no pause between tries."""
    return WorkflowStep(step_id, tool_name=tool, **{"backoff_seconds": 0.0, **more})


def workflow(*steps: WorkflowStep, **more: Any) -> WorkflowSpec:
    return WorkflowSpec("example", steps=steps, **more)


def echo(**values: Any) -> Any:
    """The values; a single one by itself."""
    return next(iter(values.values())) if len(values) == 1 else values


async def rest(**values: Any) -> Any:
    await asyncio.sleep(0)
    return echo(**values)
