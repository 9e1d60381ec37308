"""Python tools: a fresh interpreter each time, JSON in and JSON out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Result
from ratchet.flowkit.spec import ToolDefinition
from ratchet.tools.inside import python_tool

from .programs import Finished, ProgramStopped, run_program

OUTPUT_BYTES = 1_048_576
_SHOWN_CHARS = 300


async def call_python(
    tool: ToolDefinition, values: Mapping[str, Any], folder: Path, seconds: float
) -> Result:
    """Raises `StepFailed`."""
    body = tool.extra["python"]
    order = {
        "source": tool.source_code,
        "name": f"<{tool.tool_id}>",
        "entry": None if body.get("script") else body["entry"],
        "input": dict(values),
    }
    argv = [sys.executable, "-I", str(python_tool.__file__)]
    finished = await run(tool, argv, json.dumps(order).encode(), folder, seconds)
    try:
        value = json.loads(finished.stdout)
    except ValueError:
        raise StepFailed(
            f"tool {tool.tool_id} ended without an answer", metrics=metrics_of(finished)
        ) from None
    return Result(value, metrics_of(finished))


async def run(
    tool: ToolDefinition,
    argv: list[str],
    given: bytes,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """How the program of a tool ended, if it ended well. Raises `StepFailed`."""
    most = tool.extra.get("constraints", {}).get("max_output_bytes", OUTPUT_BYTES)
    try:
        finished = await run_program(
            argv, given, folder=folder, seconds=seconds, output_bytes=most, environment=environment
        )
    except ProgramStopped as stopped:
        raise StepFailed(f"tool {tool.tool_id} {stopped}", metrics={"exit_code": 124}) from None
    if finished.exit_code != 0:
        last = next((line for line in reversed(finished.said.splitlines()) if line.strip()), "")
        raise StepFailed(
            f"tool {tool.tool_id} failed: {last.strip()[:_SHOWN_CHARS] or f'exit code {finished.exit_code}'}",
            metrics=metrics_of(finished),
        )
    return finished


def metrics_of(finished: Finished) -> dict[str, Any]:
    return {"wall_ms": finished.wall_ms, "exit_code": finished.exit_code}
