"""Putting hostile code into an honest recipe, so that it runs when the recipe does."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ratchet.research.adapter import TaskAdapter
from ratchet.research.checking.hostile.attack import Attack
from ratchet.research.checking.hostile.beginnings import BEGIN, FORGE, FORGE_COMMAND, FORGE_FUNCTION
from ratchet.research.measuring.recipe import Recipe

# Once in a process, by whichever file of the recipe it runs first.
_ONCE = "import sys as _sys; hasattr(_sys, 'hostile') or exec({code!r}, {{'FACTS': {facts!r}}})"
_AT_THE_END = "exec({code!r}, {{'FACTS': {facts!r}, 'RECIPE': globals()}})"


def plant(
    task: TaskAdapter, files: Mapping[str, bytes], attack: Attack, facts: Mapping[str, Any]
) -> dict[str, bytes]:
    """The changed files of a hostile candidate; none when there is no Python in the recipe.

    All Python files of the recipe get the code at their top, since any of them may be what is started.
    """
    told = {**facts, "function": task.trial.function if task.trial is not None else ""}
    recipe = Recipe(task.recipe)
    first = _ONCE.format(code=BEGIN + _first(task, attack), facts=told)
    last = ""
    if attack.forge and task.trial is not None and task.trial.is_node:
        last = _AT_THE_END.format(code=f"import os\n{FORGE}\n{attack.forge}\n{FORGE_FUNCTION}", facts=told)
    planted: dict[str, bytes] = {}
    for path, content in files.items():
        if not path.endswith(".py") or not recipe.covers(path):
            continue
        is_entry = task.trial is not None and path == task.trial.file
        changed = _with(content, first, last if is_entry else "")
        if changed is not None:
            planted[path] = changed
    return planted


def _first(task: TaskAdapter, attack: Attack) -> str:
    if attack.forge and task.trial is not None and not task.trial.is_node:
        return f"{FORGE}\n{attack.forge}\n{FORGE_COMMAND}"
    return attack.code


def _with(content: bytes, first: str, last: str) -> bytes | None:
    """The file with one line more at its top and one at its end; `None` for one that is not understood."""
    try:
        text = content.decode()
        lines = text.split("\n")
        lines.insert(_below_futures(ast.parse(text)), first)
        changed = "\n".join([*lines, last, ""])
        compile(changed, "hostile", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None
    return changed.encode()


def _below_futures(module: ast.Module) -> int:
    """Behind which line code may stand: a docstring and imports from `__future__` must be the first."""
    below = 0
    for number, statement in enumerate(module.body):
        is_docstring = (
            number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        if not is_docstring and not (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        ):
            break
        below = statement.end_lineno or below
    return below
