"""Every attack on honest tasks of both kinds: none comes to anything."""

from __future__ import annotations

import sysconfig
import tempfile
from pathlib import Path

import pytest

from ratchet.kernel import Direction
from ratchet.research.checker import CheckPart, Grade
from ratchet.research.checker.forgeries import REACHES, forgeries
from ratchet.research.checker.hostile import ENDS, EXHAUSTS, RecipeKind
from tests.research.checker.folders import (
    NODE_RECIPE,
    NODE_TASK,
    write,
    write_command,
    write_node,
)
from tests.research.checker.trying import attacked, failures

ON_FILES = {
    "changes a file outside of the recipe",
    "brings an evaluator along",
    "does not compile",
    "holds bytes that are no text",
    "makes the compiler crash",
    "removes the recipe",
    "is a link to the evaluator",
}


def named(direction: Direction, where: RecipeKind) -> set[str]:
    every = (*forgeries(direction), *REACHES, *EXHAUSTS, *ENDS)
    return {each.name for each in every if each.where in (where, RecipeKind.BOTH)}


@pytest.mark.soak
def test_a_function_withstands_every_attack(tmp_path: Path) -> None:
    found = attacked(write_node(tmp_path / "hill"))
    assert failures(found) == {}
    assert {each.grade for each in found.values()} == {Grade.OK}
    assert {each.part for each in found.values()} == {CheckPart.ATTACK}
    assert set(found) == {"hostile code runs"} | named(Direction.MAX, RecipeKind.NODE) | ON_FILES
    assert found["hangs"].seen.startswith("train_budget_overrun")
    assert found["takes all memory"].seen.startswith("crash")
    assert found["exits with 127"].seen.startswith("crash")
    assert all(each.expected and each.seen for each in found.values())


@pytest.mark.soak
def test_a_command_withstands_every_attack(tmp_path: Path) -> None:
    found = attacked(write_command(tmp_path / "sums"))
    assert failures(found) == {}
    assert {each.grade for each in found.values()} == {Grade.OK}
    more = {"hostile code runs", "changes a stage file", "is larger than it may be"}
    assert set(found) == named(Direction.MIN, RecipeKind.COMMAND) | ON_FILES | more
    assert found["leaves grandchildren behind"].seen == "score 480.0"
    assert "more processes" in found["forks without end"].seen
    assert found["leaves links in the place of its files"].seen.startswith("crash")


@pytest.mark.soak
def test_a_recipe_that_is_only_read_is_attacked_by_its_files(tmp_path: Path) -> None:
    found = attacked(only_read(tmp_path / "read", "float(text)"))
    assert failures(found) == {
        "is a number": "it scored 1000000000.0; the honest recipe has 2.5",
    }
    assert "the evaluator does not run it" in found["hostile code runs"].detail


@pytest.mark.soak
def test_a_recipe_that_is_only_read_withstands_when_it_is_checked(tmp_path: Path) -> None:
    assert failures(attacked(only_read(tmp_path / "read", "min(float(text), 2.5)"))) == {}


def test_a_recipe_without_python_is_said_not_to_be_attacked(tmp_path: Path) -> None:
    task = NODE_TASK.replace('recipe = ["recipe.py"]', 'recipe = ["recipe.sh"]').replace(
        'function = "climb"\nfile = "recipe.py"', 'command = ["sh", "recipe.sh"]'
    )
    folder = write(
        tmp_path / "shell",
        {
            "task.toml": task.partition("[[tool]]")[0],
            "recipe.sh": "echo 1\n",
            "evaluator/evaluate.py": "def score(given):\n    return {'height': 1.0}\n",
        },
    )
    found = attacked(folder)
    assert failures(found) == {}
    assert found["hostile code runs"].grade is Grade.WARNING
    assert "hangs" not in found


def test_an_honest_recipe_that_cannot_be_measured_ends_the_suite(tmp_path: Path) -> None:
    broken = NODE_RECIPE.replace("return", "raise ValueError('no way up')\n    return")
    found = attacked(write_node(tmp_path / "hill", recipe=broken))
    assert list(failures(found)) == ["the honest recipe is measured"]
    assert "no way up" in failures(found)["the honest recipe is measured"]


def only_read(folder: Path, worth: str) -> Path:
    """A task whose recipe is a text that the evaluator makes a number of."""
    task = NODE_TASK.partition("[trial]")[0].replace("recipe.py", "recipe.txt") + (
        '[evaluator]\nfunction = "score"\nfile = "evaluate.py"\nreads_candidate = true\nseconds = 5.0\n'
        "[keep]\ndeterministic = true\n"
    )
    evaluator = (
        "import math, pathlib\n"
        "def score(given):\n"
        "    text = pathlib.Path(given['candidate'], 'recipe.txt').read_text().strip()\n"
        "    try:\n"
        f"        worth = {worth}\n"
        "    except ValueError:\n"
        "        return {'invalid': 'no number'}\n"
        "    return {'height': worth} if math.isfinite(worth) else {'invalid': 'not finite'}\n"
    )
    return write(folder, {"task.toml": task, "recipe.txt": "2.5\n", "evaluator/evaluate.py": evaluator})


def test_a_recipe_that_just_fits_its_size_is_attacked_all_the_same(tmp_path: Path) -> None:
    task = f"{NODE_TASK}\n[size]\nlimit_bytes = {len(NODE_RECIPE)}\n"
    found = attacked(write_node(tmp_path / "hill", task=task), "raises", "is larger than it may be")
    assert found["raises"].seen.startswith("crash")
    assert found["is larger than it may be"].seen.startswith("size_blocked")


@pytest.mark.soak
def test_a_task_that_lies_among_the_packages_of_python_cannot_be_read_there() -> None:
    name = "reads evaluator, task, home and ledger"
    with tempfile.TemporaryDirectory(prefix="ratchet-test-", dir=sysconfig.get_paths()["purelib"]) as place:
        for folder in (write_node(Path(place, "hill")), write_command(Path(place, "sums"))):
            assert failures(attacked(folder, name)) == {}
