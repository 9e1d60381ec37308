"""task.py: a task that says what TOML cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, TrialStatus
from ratchet.research.adapter import Refused
from ratchet.research.tasks import read_task
from tests.research.tasks.folders import RECIPE, SCORE, Folder

HEAD = """\
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import EvaluatorProgram, Program, Refused, TaskAdapter
"""
LEGAL = f"""{HEAD}
class Mine(TaskAdapter):
    def preflight(self, directory: Path) -> None:
        if "eval" in (directory / "recipe.py").read_text():
            raise Refused(TrialStatus.DISQUALIFIED, "eval is not allowed")
"""
ALONE = f"""{HEAD}
class Mine(TaskAdapter):
    recipe = ("recipe.py",)
    trial = Program(function="answer", file="recipe.py")
    evaluator = EvaluatorProgram(function="score", file="score.py")
"""


def test_a_method_of_the_subclass_is_used_with_the_values_of_the_toml(folder: Folder) -> None:
    folder.put("task.py", LEGAL)
    task = folder.read()
    assert (task.name, task.recipe) == ("small", ("recipe.py",))
    task.preflight(folder.path)
    folder.put("recipe.py", "eval('1')")
    with pytest.raises(Refused) as caught:
        task.preflight(folder.path)
    assert caught.value.status is TrialStatus.DISQUALIFIED


def test_a_subclass_may_be_the_whole_description(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "alone")
    folder.put("task.py", ALONE)
    folder.put("recipe.py", RECIPE)
    folder.put("evaluator/score.py", SCORE)
    task = folder.read()
    assert (task.name, task.root, task.recipe) == ("alone", folder.path, ("recipe.py",))


def test_a_dataclass_may_add_values_of_its_own(folder: Folder) -> None:
    folder.put(
        "task.py",
        f"{HEAD}\n@dataclass(kw_only=True)\nclass Mine(TaskAdapter):\n    extra: int = 7\n    name: str = 'other'\n",
    )
    task = folder.read()
    assert task.name == "other"
    assert task.extra == 7  # type: ignore[attr-defined]


def test_a_variant_reaches_the_subclass(folder: Folder) -> None:
    folder.put("task.py", LEGAL)
    folder.add("[variants.two]\nagents = 2")
    task = folder.read("two")
    assert (type(task).__name__, len(task.doers)) == ("Mine", 2)


def test_a_variant_without_a_toml_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put("task.py", ALONE)
    with pytest.raises(Misuse, match=r"variants are described in a task\.toml"):
        folder.read("two")


def test_what_the_class_says_is_checked_like_a_toml(folder: Folder) -> None:
    folder.put("task.py", f"{HEAD}\nclass Mine(TaskAdapter):\n    recipe = ('evaluator',)\n")
    with pytest.raises(Misuse, match="overlap"):
        folder.read()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "defines none"),
        ("class A(TaskAdapter): ...\nclass B(TaskAdapter): ...", "defines A, B"),
        ("Mine = TaskAdapter", "defines none"),
        ("raise RuntimeError('no')", r"task\.py cannot be loaded: RuntimeError: no"),
        ("raise SystemExit(0)", r"task\.py cannot be loaded: SystemExit"),
        ("class Mine(TaskAdapter)", r"task\.py cannot be loaded: SyntaxError"),
        ("import does_not_exist_anywhere", r"cannot be loaded: ModuleNotFoundError"),
        (
            "class Mine(TaskAdapter):\n    @property\n    def recipe(self): return ()",
            "makes recipe a property",
        ),
        ("class Mine(TaskAdapter):\n    def direction(self): ...", "makes direction a property or method"),
        ("class Mine(TaskAdapter):\n    def __init__(self): ...", "cannot be loaded: TypeError"),
        ("class Mine(TaskAdapter):\n    recipe = 'recipe.py'", "recipe is a text, not a tuple"),
        ("class Mine(TaskAdapter):\n    direction = 'up'", "the direction is 'up'"),
        ("class Mine(TaskAdapter):\n    name = 'a/b'", "'a/b', which is no name"),
        ("class Mine(TaskAdapter):\n    max_trials = -1", "max_trials is -1"),
        ("class Mine(TaskAdapter):\n    max_hours = float('nan')", "max_hours is nan"),
        ("class Mine(TaskAdapter):\n    baseline_score = float('nan')", "baseline is nan"),
        (
            "class Mine(TaskAdapter):\n    recipe = ('../x',)",
            r"the recipe: the path '\.\./x' is not a file name",
        ),
        ("class Mine(TaskAdapter):\n    recipe = ('/x',)", "the recipe: the path '/x'"),
        ("class Mine(TaskAdapter):\n    doers = ()", "the roster is empty"),
    ],
)
def test_code_that_makes_no_task_is_refused(folder: Folder, body: str, told: str) -> None:
    folder.put("task.py", f"{HEAD}\n{body}\n")
    with pytest.raises(Misuse, match=told):
        folder.read()


def test_loading_leaves_nothing_in_the_folder(folder: Folder) -> None:
    folder.put("task.py", LEGAL)
    before = sorted(folder.path.rglob("*"))
    folder.read()
    assert sorted(folder.path.rglob("*")) == before


def test_an_edited_file_is_read_anew(folder: Folder) -> None:
    folder.put("task.py", f"{HEAD}\nclass Mine(TaskAdapter):\n    known_best = '1'\n")
    assert folder.read().known_best == "1"
    folder.put("task.py", f"{HEAD}\nclass Mine(TaskAdapter):\n    known_best = '2'\n")
    assert folder.read().known_best == "2"


def test_two_folders_with_the_same_code_are_two_tasks(folder: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "other")
    for each in (folder, other):
        each.put("task.py", f"{ALONE}    known_best = __file__\n")
        each.put("recipe.py", RECIPE)
        each.put("evaluator/score.py", SCORE)
    assert read_task(folder.path).known_best == str(folder.path / "task.py")
    assert read_task(other.path).known_best == str(other.path / "task.py")


def test_code_that_breaks_is_not_left_among_the_modules(folder: Folder) -> None:
    folder.put("task.py", "raise RuntimeError")
    before = set(sys.modules)
    with pytest.raises(Misuse):
        folder.read()
    assert not [name for name in set(sys.modules) - before if name.startswith("ratchet_task")]


def test_models_and_priorities_reach_a_task_that_is_all_python(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "alone")
    roster = '    doers = (Specialist(name="opt", model="own"), Specialist(name="arch", priority=2))\n'
    folder.put("task.py", ALONE.replace("TaskAdapter\n", "Specialist, TaskAdapter\n") + roster)
    folder.put("recipe.py", RECIPE)
    folder.put("evaluator/score.py", SCORE)
    said = {"model": {"default": "base"}, "scheduler_priority": {"overrides": {"opt": 5}}}
    folder.put("swarm_config.json", json.dumps(said))
    assert [(each.name, each.model, each.priority) for each in folder.read().roster] == [
        ("opt", "own", 5),
        ("arch", "base", 2),
    ]
    folder.put("swarm_config.json", json.dumps({"model": {"overrides": {"nobody": "big"}}}))
    with pytest.raises(Misuse, match="in no roster"):
        folder.read()
