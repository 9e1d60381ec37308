"""Executable tools: a program that is there already, or a script that came with the export."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Result
from ratchet.flowkit.spec import ToolDefinition
from ratchet.flowkit.templates import fill
from ratchet.tools.inside import python_tool

from .programs import Finished
from .python_tools import metrics_of, run

PYTHONS = ("python", "python3")
NOT_FOUND = 127
_FILE_INPUTS = ("_file", "_path")


async def call_program(
    tool: ToolDefinition, values: Mapping[str, Any], files: Path, folder: Path, seconds: float
) -> Result:
    """What the program printed, as JSON if the tool has an output schema; else how it went, in full.

    `files` holds the scripts of the tool. Raises `StepFailed`.
    """
    argv = _command_line(tool, values, files)
    finished = await run(tool, argv, _stdin(values), folder, seconds)
    if "output_schema" not in tool.extra:
        return Result(_told(argv, finished), metrics_of(finished))
    try:
        value = python_tool.last_document(finished.stdout.decode(errors="replace"))
    except ValueError as error:
        raise StepFailed(
            f"tool {tool.tool_id} has an output schema, but {error}", metrics=metrics_of(finished)
        ) from None
    return Result(value, metrics_of(finished))


def _command_line(tool: ToolDefinition, values: Mapping[str, Any], files: Path) -> list[str]:
    body = tool.extra["executable"]
    words = {"prompt": json.dumps(dict(values)), **values, "tool_dir": str(files)}
    for name, value in values.items():
        # The program starts in a folder of its own; a file that is named is meant to be found from here.
        if name.endswith(_FILE_INPUTS) and isinstance(value, str) and Path(value).exists():
            words[name] = str(Path(value).absolute())
    arguments = [fill(each, words) for each in body.get("args", ())]
    command = fill(body["command"], words)
    if command in PYTHONS:
        return [sys.executable, *arguments]
    program = shutil.which(command if os.sep not in command else str(files / command))
    if program is None:
        install = body.get("install_command")
        raise StepFailed(
            f"tool {tool.tool_id}: the command {command!r} is not there",
            final=True,
            metrics={"exit_code": NOT_FOUND},
            hint=f"install it: {install}" if install else f"install {command}",
        )
    return [program, *arguments]


def _stdin(values: Mapping[str, Any]) -> bytes:
    if values.keys() == {"prompt"} and isinstance(values["prompt"], str):
        return values["prompt"].encode(errors="replace")
    return json.dumps(dict(values)).encode()


def _told(argv: list[str], finished: Finished) -> dict[str, Any]:
    return {
        "success": True,
        "exit_code": finished.exit_code,
        "stdout": finished.stdout.decode(errors="replace"),
        "stderr": finished.said,
        "command": shlex.join(argv),
    }
