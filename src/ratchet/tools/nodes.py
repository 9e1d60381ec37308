"""Python tools: a fresh process each time, forked from a warm parent.

A tool with packages of its own or with the network gets an interpreter of its own instead, since what is forked has
neither. Either way it defines a function that is called with the inputs by name, or is a script that finds them on
stdin and prints its answer.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ratchet.sandbox import Bounds, Finished, Node, Policy, run
from ratchet.tools.bodies import PythonBody
from ratchet.tools.call import Called, Occasion, ToolFailed
from ratchet.tools.definition import Tool
from ratchet.tools.environments import environment_for
from ratchet.tools.sandboxed import (
    SCRATCH,
    as_json,
    bounds_for,
    environment,
    failure_of,
    listener_to,
    said_by,
    startable,
    use_of,
)


async def call_python(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    """Raises `ToolFailed`."""
    bounds = bounds_for(tool, occasion, seconds)
    alone = bool(tool.requirements or tool.network)
    with startable(tool):
        finished = await (_run_alone if alone else _run_forked)(tool, body, values, occasion, bounds)
    if not finished.ok:
        raise failure_of(tool, finished, bounds)
    try:
        return Called(finished.value, use_of(finished), said_by(finished))
    except ValueError:
        # Only from an interpreter of its own, if the code has ended it or closed what the answer leaves by.
        raise ToolFailed(
            f"tool {tool.id} ended without an answer", use=use_of(finished), said=said_by(finished)
        ) from None


async def _run_forked(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, bounds: Bounds
) -> Finished:
    name = f"<{tool.id}>"
    if has_function(body.source, body.entry):
        node = Node(body.source, function=body.entry, spread=True, scratch=True, file=name)
        given = as_json(values)
    else:
        node = Node(_inside(), function="run_script", scratch=True, file="<ratchet>")
        given = as_json({"source": body.source, "name": name, "input": values})
    return await run(node, stdin=given, bounds=bounds, overhear=listener_to(occasion))


async def _run_alone(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, bounds: Bounds
) -> Finished:
    python, shown = Path(sys.executable), tuple[Path, ...]()
    if tool.requirements:
        runtime = occasion.runtime
        made = await environment_for(tool.requirements, runtime.home, runtime.settings.tools)
        python, shown = made.python, (made.directory,)
    entry = body.entry if has_function(body.source, body.entry) else None
    order = {"source": body.source, "name": f"<{tool.id}>", "entry": entry, "input": values}
    policy = Policy(network=tool.network, readable=shown, environment=environment(python.parent))
    return await run(
        [str(python), "-I", "-c", _inside()],
        cwd=SCRATCH,
        stdin=as_json(order),
        bounds=bounds,
        policy=policy,
        overhear=listener_to(occasion),
    )


@functools.lru_cache(maxsize=1024)
def has_function(source: str, name: str) -> bool:
    """Whether the code defines `name`, and so is no script. What cannot be parsed fails later, with its line."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in _statements(parsed.body))


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those of the module, also the ones below an `if` or a `try`, but no function that is part of another thing."""
    found = list(body)
    for each in body:
        if isinstance(each, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                found += _statements(getattr(each, part, []))
            for handler in getattr(each, "handlers", ()):
                found += _statements(handler.body)
    return found


@functools.cache
def _inside() -> str:
    return resources.files("ratchet.tools.inside").joinpath("python_tool.py").read_text()
