"""Packages that load their names on demand can do so in any order."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"


def test_no_public_name_is_that_of_a_module_which_would_take_its_place() -> None:
    taken = {}
    for package in SOURCE.rglob("__init__.py"):
        names = {
            imported.name
            for block in ast.parse(package.read_text()).body
            if isinstance(block, ast.If)
            for statement in block.body
            if isinstance(statement, ast.ImportFrom)
            for imported in statement.names
        }
        if found := names & {each.stem for each in package.parent.iterdir()}:
            taken[str(package.parent)] = found
    assert taken == {}
