"""What docs/research-tasks.md says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Refused, TaskAdapter
from ratchet.research.tasks.tables import tables
from ratchet.sandbox import Bounds
from tests.research.tasks.folders import Folder

PAGE = (Path(__file__).parents[3] / "docs/research-tasks.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.S)


@pytest.fixture
def example(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "walk")
    recipe, evaluator, _ = blocks("python")
    folder.put("recipe.py", recipe)
    folder.put("evaluator/evaluate.py", evaluator)
    folder.toml(blocks("toml")[0])
    return folder


def test_the_example_is_a_task(example: Folder) -> None:
    task = example.read()
    assert (task.name, task.direction, task.label) == ("walk", "min", "distance")
    assert len(example.read("ten").doers) == 10


def test_the_example_can_be_measured(example: Folder) -> None:
    recipe: dict[str, object] = {}
    exec((example.path / "recipe.py").read_text(), recipe)
    evaluator: dict[str, object] = {}
    exec((example.path / "evaluator/evaluate.py").read_text(), evaluator)
    question = evaluator["prepare"]({"seed": 0, "held_out": False})  # type: ignore[operator]
    answer = recipe["walk"]({"seed": 0, "question": question})  # type: ignore[operator]
    scored = evaluator["score"]({"trial": {"answer": answer, "cpu_ms": 1.0}})  # type: ignore[operator]
    assert 0 <= scored["distance"] < 0.1


def test_the_example_of_swarm_config_and_of_code_fit_it(example: Folder) -> None:
    example.put("swarm_config.json", blocks("json")[0])
    example.put("task.py", blocks("python")[2])
    task = example.read()
    assert [(each.model, each.priority) for each in task.roster] == [("a-larger-model", 5)]
    example.put("recipe.py", "import os\n")
    with pytest.raises(Refused) as caught:
        task.preflight(example.path)
    assert caught.value.status is TrialStatus.DISQUALIFIED


@pytest.mark.parametrize("name", tables())
def test_every_key_is_told_of(name: str) -> None:
    [row] = re.findall(rf"^\| `\[+{name}\]+` \|(.*)$", PAGE, flags=re.M)
    runs = re.findall(r"^\| `\[trial\]` \|(.*)$", PAGE, flags=re.M)[0]
    told = set(re.findall(r"`(\w+)`", row + runs if "[trial]" in row else row))
    assert set(tables()[name].model_fields) <= told


def test_the_limits_that_it_tells_are_those_of_the_sandbox() -> None:
    bounds = Bounds()
    assert bounds.memory_bytes is not None
    assert bounds.file_bytes is not None
    told = (
        f"{bounds.wall_seconds:g} seconds, {bounds.memory_bytes // 2**20} MB, {bounds.processes} processes,"
        f" {bounds.output_bytes // 2**10} KB of output, {bounds.file_bytes // 2**20} MB for each file"
    )
    assert told in PAGE


def test_every_member_that_the_contract_is_mapped_to_exists() -> None:
    table = PAGE[PAGE.index("| original | here |") :]
    named = {
        name
        for line in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)(?:\([\w, ]*\))?`", line.split("|")[2].split(";", 1)[-1])
    }
    members = {"root", "knowledge_dir", "tsv_columns", "classify", "size_check", "system_prompt"}
    assert members <= named
    known = set(TaskAdapter.__dataclass_fields__) | set(vars(TaskAdapter))
    words = {
        "function",
        "command",
        "ok",
        "warn",
        "block",
        "seconds",
        "analyst",
        "preamble_file",
        "knowledge",
        "Specialist",
    }
    assert named - known <= words


def test_the_configuration_of_a_package_is_toml_with_the_right_group() -> None:
    assert '[project.entry-points."ratchet.tasks"]' in blocks("toml")[-1]
    assert json.loads(blocks("json")[0])
