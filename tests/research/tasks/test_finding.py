"""Finding a task by a path, or by a name that a package brings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, RatchetError
from ratchet.research.shipped import circle_packing
from ratchet.research.tasks import find_task, pin_task, pinned_task, task_names
from tests.research.tasks.folders import Folder, small

PACKAGE = """\
from pathlib import Path

from ratchet.research.adapter import EvaluatorProgram, Program, TaskAdapter

ROOT = Path({root!r})


def folder():
    return ROOT


class Coded(TaskAdapter):
    root = ROOT
    recipe = ("recipe.py",)
    trial = Program(function="answer", file="recipe.py")
    evaluator = EvaluatorProgram(function="score", file="score.py")
    known_best = "coded"


def instance():
    return Coded(name="made", root=ROOT, recipe=Coded.recipe, trial=Coded.trial, evaluator=Coded.evaluator)


def broken():
    raise ValueError("no")


def nonsense():
    return 3
"""


@pytest.fixture
def installed(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A package that brings tasks, on the path as a real distribution is."""
    site = tmp_path / "site"
    module = f"tasks_of_{tmp_path.name}".replace("-", "_")
    information = site / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    (site / f"{module}.py").write_text(PACKAGE.format(root=str(folder.path)))
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = {
        "t-folder": "folder",
        "t-class": "Coded",
        "t-instance": "instance",
        "t-broken": "broken",
        "t-nonsense": "nonsense",
        "t-absent": "absent",
    }
    lines = [f"{name} = {module}:{attribute}" for name, attribute in points.items()]
    (information / "entry_points.txt").write_text("\n".join(["[ratchet.tasks]", *lines, ""]))
    monkeypatch.syspath_prepend(site)
    yield folder
    sys.modules.pop(module, None)


def test_the_shipped_tasks_are_installed() -> None:
    assert {"circle_packing", "bin_packing", "tiny_lm", "digits96", "nanotree"} <= set(task_names())
    assert circle_packing().name == "circle_packing"


@pytest.mark.parametrize("name", ["bin_packing", "circle_packing", "digits96", "nanotree", "tiny_lm"])
def test_a_shipped_task_can_be_read_in_all_its_variants(name: str) -> None:
    task = find_task(name)
    assert task.name == name
    assert all(find_task(name, each).variant == each for each in task.variants)


def test_a_path_finds_a_folder(folder: Folder) -> None:
    assert find_task(str(folder.path)).root == folder.path
    assert find_task(f"{folder.path}/").root == folder.path


def test_a_directory_here_needs_no_slash(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path.parent)
    assert find_task("small").root == folder.path
    monkeypatch.chdir(folder.path)
    assert find_task(".").root == folder.path


def test_a_directory_without_a_task_does_not_hide_an_installed_one(
    installed: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t-folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_task("t-folder").root == installed.path


def test_a_colon_names_a_variant(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.add("[variants.two]\nagents = 2")
    monkeypatch.chdir(folder.path.parent)
    for reference in (f"{folder.path}:two", "./small:two", "small:two"):
        assert find_task(reference).variant == "two"
    assert find_task("small", "two").variant == "two"
    assert find_task("small:two", "two").variant == "two"


def test_a_folder_with_a_colon_in_its_name_is_found(tmp_path: Path) -> None:
    folder = small(tmp_path / "a:b")
    assert find_task(str(folder.path)).root == folder.path


@pytest.mark.parametrize("variant", ["one", None])
def test_contradicting_or_empty_variants_are_refused(folder: Folder, variant: str | None) -> None:
    folder.add("[variants.two]\nagents = 2")
    reference = f"{folder.path}:two" if variant else f"{folder.path}:"
    with pytest.raises(Misuse, match="behind its colon"):
        find_task(reference, variant)


@pytest.mark.parametrize("reference", ["./absent", "absent/", "/absent", ""])
def test_a_folder_that_is_not_there_is_refused(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=r"there is no directory|no task is named"):
        find_task(reference)


def test_an_unknown_name_is_led_to_the_nearest() -> None:
    with pytest.raises(Misuse, match="there is no task 'circle_paking'") as caught:
        find_task("circle_paking")
    assert str(caught.value.hint).startswith("the nearest is circle_packing; there are ")


def test_an_entry_point_may_give_a_folder_with_variants(installed: Folder) -> None:
    installed.add("[variants.two]\nagents = 2")
    assert find_task("t-folder:two").variant == "two"
    assert find_task("t-folder").entry_point == ""


@pytest.mark.parametrize(("name", "called"), [("t-class", "t-class"), ("t-instance", "made")])
def test_an_entry_point_may_give_a_class_or_a_task(installed: Folder, name: str, called: str) -> None:
    task = find_task(name)
    assert (task.name, task.root, task.entry_point) == (called, installed.path, name)
    assert type(task).__name__ == "Coded"


def test_a_task_of_code_has_no_variants(installed: Folder) -> None:
    with pytest.raises(Misuse, match="has no variant 'two'"):
        find_task("t-class:two")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("t-broken", "cannot be loaded: ValueError: no"),
        ("t-absent", "cannot be loaded: AttributeError"),
        ("t-nonsense", "is int, and neither a folder nor a TaskAdapter"),
    ],
)
def test_a_package_that_breaks_is_named(installed: Folder, name: str, told: str) -> None:
    with pytest.raises(RatchetError, match=told) as caught:
        find_task(name)
    assert "uninstall" in str(caught.value.hint)


def test_one_name_in_two_packages_is_refused(
    installed: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "second" / "second-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ratchet.tasks]\nt-folder = second:folder\n")
    monkeypatch.syspath_prepend(tmp_path / "second")
    with pytest.raises(Misuse, match="2 packages bring a task 't-folder'"):
        find_task("t-folder")


def test_a_pinned_task_of_code_finds_its_code_again(installed: Folder, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pinned = pin_task(find_task("t-class"), run)
    installed.put("recipe.py", "changed = 1\n")
    again = pinned_task(run)
    assert again.root == pinned.root == run / "task"
    assert (again.known_best, again.entry_point, again.sha256) == ("coded", "t-class", pinned.sha256)
