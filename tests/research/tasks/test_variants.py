"""A variant says only what differs."""

from __future__ import annotations

import pytest

from ratchet.kernel import Direction, Misuse
from tests.research.tasks.folders import Folder

VARIANTS = """
[score]
label = "points"
columns = ["a", "b"]

[[specialist]]
name = "opt"

[[specialist]]
name = "arch"

[variants.single]
[[variants.single.specialist]]
name = "alone"

[variants.ten]
agents = 10

[variants.many]
agents = 120

[variants.down.score]
direction = "min"
columns = ["c"]

[variants.shell.trial]
command = ["bash", "x"]

[variants.slow.trial]
seconds = 99.0

[variants.other.task]
environment = { B = "2" }
"""


@pytest.fixture
def varied(folder: Folder) -> Folder:
    folder.swap('recipe = ["recipe.py"]', 'recipe = ["recipe.py"]\nenvironment = { A = "1" }')
    folder.swap('function = "answer"', 'function = "answer"\nseconds = 3.0')
    folder.add(VARIANTS)
    return folder


def names(folder: Folder, variant: str | None) -> list[str]:
    return [each.name for each in folder.read(variant).roster]


def test_a_task_knows_its_variants_and_which_it_is(varied: Folder) -> None:
    task = varied.read("down")
    assert task.variant == "down"
    assert task.variants == ("single", "ten", "many", "down", "shell", "slow", "other")
    assert varied.read().variant is None


def test_tables_are_merged_and_lists_replaced(varied: Folder) -> None:
    task = varied.read("down")
    assert (task.direction, task.label, task.columns) == (Direction.MIN, "points", ("c",))
    assert varied.read("other").environment == {"A": "1", "B": "2"}


def test_the_task_itself_stays_what_it_is(varied: Folder) -> None:
    task = varied.read()
    assert (task.direction, task.columns, task.environment) == (Direction.MAX, ("a", "b"), {"A": "1"})


def test_a_roster_is_replaced_as_a_whole(varied: Folder) -> None:
    assert names(varied, None) == ["opt", "arch"]
    assert names(varied, "single") == ["alone"]


def test_generic_agents_are_numbered(varied: Folder) -> None:
    assert names(varied, "ten") == [f"agent-{number:02}" for number in range(1, 11)]
    assert names(varied, "many")[0] == "agent-001"
    assert len(names(varied, "many")) == 120


def test_another_way_to_run_replaces_the_first_and_keeps_its_limits(varied: Folder) -> None:
    trial = varied.read("shell").trial
    assert trial is not None
    assert (trial.argv, trial.function, trial.file) == (("bash", "x"), "", "")
    assert trial.bounds.wall_seconds == 3.0


def test_a_limit_alone_keeps_how_it_is_run(varied: Folder) -> None:
    trial = varied.read("slow").trial
    assert trial is not None
    assert (trial.function, trial.bounds.wall_seconds) == ("answer", 99.0)


def test_an_unknown_variant_names_those_there_are(varied: Folder) -> None:
    with pytest.raises(Misuse, match="has no variant 'twelve'; it has down, many, other"):
        varied.read("twelve")


def test_a_task_without_variants_says_so(folder: Folder) -> None:
    with pytest.raises(Misuse, match="it has none"):
        folder.read("single")


def test_agents_and_specialists_in_one_variant_are_refused(folder: Folder) -> None:
    folder.add("[variants.x]\nagents = 2\n[[variants.x.specialist]]\nname = 'a'")
    with pytest.raises(Misuse, match="both agents and specialists"):
        folder.read("x")


def test_a_mistake_in_a_variant_is_found_when_the_task_itself_is_read(folder: Folder) -> None:
    folder.add("[variants.x.keep]\nalpha = 3.0")
    with pytest.raises(Misuse, match=r"variants\.x\.keep\.alpha \(.*:13\) is 3\.0"):
        folder.read()


def test_variants_are_joined_by_a_plus_and_each_changes_what_was_made_before(varied: Folder) -> None:
    task = varied.read("down+ten")
    assert (task.direction, task.columns, len(task.doers)) == (Direction.MIN, ("c",), 10)
    assert [each.name for each in varied.read("ten+single").doers] == ["alone"]
    with pytest.raises(Misuse, match="no variant 'up'"):
        varied.read("down+up")
