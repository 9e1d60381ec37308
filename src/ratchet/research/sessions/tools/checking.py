"""Looking at the recipe before a trial is spent on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Misuse
from ratchet.research.measuring.syntax import compiler
from ratchet.research.sessions import parameters
from ratchet.research.sessions.recipe import read_recipe
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import form, told
from ratchet.sandbox import Bounds, Node, run

_BOUNDS = Bounds(wall_seconds=30, memory_bytes=1024**3, output_bytes=4 * 1024**2)


def syntax_check(sitting: Sitting) -> Tool:
    async def use(_given: Mapping[str, Any]) -> str:
        files = await _python_files(sitting)
        errors = await asyncio.to_thread(_errors, files)
        answer: dict[str, Any] = {"ok": not errors, "files_checked": len(files), "errors": errors}
        if sitting.task.size_limit_bytes is not None:
            size = await asyncio.to_thread(sitting.task.size_check, sitting.workspace.path)
            answer["size"] = {
                "verdict": size.verdict,
                "total_bytes": size.total_bytes,
                "limit_bytes": size.limit_bytes,
            }
        return told(answer)

    return Tool(
        "syntax_check",
        "Compile every Python file of the recipe as it is in your workspace, without running it. "
        "Tells what is wrong and where, and the size if that is limited.",
        form(),
        use,
    )


def param_count(sitting: Sitting) -> Tool:
    async def use(_given: Mapping[str, Any]) -> str:
        return told(await _counted(await _python_files(sitting)))

    return Tool(
        "param_count",
        "Count the parameters of the recipe's layers (Linear, Embedding, Conv1d to Conv3d) whose sizes are "
        "written down in the source, and the data that is written into it. Nothing is run, so this is an estimate.",
        form(),
        use,
    )


async def _python_files(sitting: Sitting) -> dict[str, bytes]:
    return await asyncio.to_thread(read_recipe, sitting.task, sitting.workspace.path, ".py")


def _errors(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """What the trial's preflight would find, all of it."""
    found = ((path, compiler.check(path, content)) for path, content in files.items())
    return [
        {"file": path, "line": problem.line, "error": problem.message}
        for path, problem in found
        if problem is not None
    ]


async def _counted(files: Mapping[str, bytes]) -> Any:
    node = Node(Path(parameters.__file__), function="count")
    given = {path: content.decode("latin-1") for path, content in files.items()}
    done = await run(node, stdin=json.dumps(given).encode(), bounds=_BOUNDS)
    if not done.ok:
        raise Misuse(f"the recipe cannot be read as Python: {done.problem}", hint="use syntax_check")
    return done.value
