"""Whatever stands in a task.toml, reading it gives a task or a `Misuse`, and nothing else."""

from __future__ import annotations

import json
import math
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks.tables import tables
from tests.research.tasks.folders import RECIPE, SCORE, Folder, small

HOSTILE_TEXTS = [
    "",
    ".",
    "..",
    "/",
    "../x",
    "a/../b",
    "/etc/passwd",
    "\0",
    "\n",
    "recipe.py",
    "evaluator",
    ".git",
]
texts = st.sampled_from(HOSTILE_TEXTS) | st.text(max_size=20).filter(lambda text: text.isprintable())
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats()
scalars = texts | numbers | st.booleans() | st.dates() | st.times()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from([(name, key) for name, table in tables().items() for key in table.model_fields])


def as_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case float() if math.isnan(value) or math.isinf(value):
            return str(value)
        case int() | float():
            return repr(value)
        case list():
            return "[" + ", ".join(map(as_toml, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{as_toml(key)} = {as_toml(each)}" for key, each in value.items()) + "}"
        case _:
            return str(value.isoformat())


@pytest.mark.soak
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(key=keys, value=values, in_variant=st.booleans())
def test_any_value_of_any_key_is_taken_or_refused(key: tuple[str, str], value: Any, in_variant: bool) -> None:
    table, name = key
    with tempfile.TemporaryDirectory() as place:
        folder = small(Path(place) / "small")
        prefix = "variants.v." if in_variant else ""
        header = f"[[{prefix}{table}]]" if table in ("specialist", "tool") else f"[{prefix}{table}]"
        said = f"{header}\n{name} = {as_toml(value)}\n"
        if in_variant or table not in ("task", "trial", "evaluator"):
            folder.add(said)
        else:
            folder.toml(said)
        task = taken(folder, "v" if in_variant else None)
        if task is not None:
            stays_inside(task.root, [*task.recipe, *task.stage_files, task.evaluator_dir, task.inputs or ""])
            assert all(map(math.isfinite, (task.session_seconds, task.keep.alpha, task.max_hours or 0.0)))


def taken(folder: Folder, variant: str | None = None) -> TaskAdapter | None:
    """The task, or nothing when it is refused. Whatever else is raised fails the test."""
    try:
        return folder.read(variant)
    except Misuse:
        return None


def stays_inside(root: Path, paths: list[str]) -> None:
    for path in paths:
        assert (root / path).resolve().is_relative_to(root)


@pytest.mark.soak
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.binary(max_size=200) | st.text(string.printable, max_size=200).map(str.encode))
def test_any_bytes_are_taken_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        for name in ("task.toml", "swarm_config.json"):
            folder = small(Path(place) / name)
            (folder.path / name).write_bytes(content)
            task = taken(folder)
            assert task is None or name == "swarm_config.json"


@pytest.mark.soak
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(recipe=st.text(max_size=100) | st.just(RECIPE), evaluator=st.text(max_size=100) | st.just(SCORE))
def test_any_programs_are_taken_or_refused(recipe: str, evaluator: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = small(Path(place) / "small")
        (folder.path / "recipe.py").write_bytes(recipe.encode(errors="surrogatepass"))
        (folder.path / "evaluator/score.py").write_bytes(evaluator.encode(errors="surrogatepass"))
        task = taken(folder)
        assert task is not None or (recipe, evaluator) != (RECIPE, SCORE)
