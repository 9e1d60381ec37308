"""What holds for all packages: names that mean one thing, and doors that others come through."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
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


def test_a_public_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE)
        # Programs of tasks and what a new task begins with: no names of Ratchet's.
        if not {"shipped", "template"} & set(path.parts):
            for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.MULTILINE):
                places[name].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
