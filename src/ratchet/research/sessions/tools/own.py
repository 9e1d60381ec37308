"""The tools that a task brings along: functions of its adapter, and programs that run in the sandbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Misuse
from ratchet.research.adapter import Program, ToolCommand
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import form
from ratchet.sandbox import Finished, Node, Policy, run
from ratchet.sandbox.plan import is_shown

_TAIL = 2000
_SHIPPED = Path(__file__).parents[2] / "shipped"


def task_tools(sitting: Sitting) -> list[Tool]:
    return [
        *sitting.task.tools(sitting.workspace.path),
        *(_command(sitting, each) for each in sitting.task.tool_commands),
    ]


def _command(sitting: Sitting, command: ToolCommand) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        question = {"candidate": str(sitting.workspace.path), "given": dict(given)}
        done = await _run(sitting, command.program, json.dumps(question).encode())
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip()[-_TAIL:]
            raise Misuse(f"{command.name} failed: {done.problem}" + (f"\n{said}" if said else ""))
        return done.stdout.decode(errors="replace")

    return Tool(command.name, command.description, command.input_schema or form(), use)


async def _run(sitting: Sitting, program: Program, stdin: bytes) -> Finished:
    task, directory = sitting.task, sitting.workspace.path
    policy = Policy(
        readable=(directory, *((task.root / task.inputs,) if task.inputs else ())),
        # It may import what a model wrote, which must not find the evaluators that come with Ratchet.
        hidden=(_SHIPPED,) if is_shown(_SHIPPED) else (),
        environment={"PATH": os.environ.get("PATH", os.defpath), **task.environment},
    )
    if program.is_node:
        node = Node(task.root / program.file, function=program.function, modules=program.modules)
        return await run(node, stdin=stdin, bounds=program.bounds, policy=policy)
    inputs = str(task.root / task.inputs) if task.inputs else ""
    values = {"{python}": sys.executable, "{candidate}": str(directory), "{inputs}": inputs}
    argv = [_filled(word, values) for word in program.argv]
    return await run(argv, cwd=directory, stdin=stdin, bounds=program.bounds, policy=policy)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
