"""Packages whose public names are loaded when they are first used.

A package is the door to what is inside: others import from it. Loading every module behind it would make each command
pay for all of them, so an `__init__` lists its names for readers and type checkers and loads each on demand:

    if TYPE_CHECKING:
        from ratchet.ledger.events import Event, EventFilter
    else:
        __getattr__ = on_demand(__name__)

`implicit_reexport` in pyproject.toml names the package, so that the type checker lets others import these names. No
name may be that of a module in the same package: the module would take its place once it is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def on_demand(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of `package`, for the names that it imports under `if TYPE_CHECKING`."""

    @cache
    def modules() -> dict[str, str]:
        return _listed(package)

    def load(name: str) -> Any:
        # Python asks for dunders while it imports, and for submodules that are not there yet.
        if name.startswith("__") or name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def _listed(package: str) -> dict[str, str]:
    """Each name with the module it comes from, as the source of the package says."""
    source = sys.modules[package].__loader__.get_source(package)  # type: ignore[union-attr]
    return {
        imported.name: str(statement.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for imported in statement.names
    }
