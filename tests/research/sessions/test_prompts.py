"""What specialists are told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ratchet.engines.tool_server import Way
from ratchet.kernel import Direction, Limits, Misuse
from ratchet.research.adapter import KeepRule, Program, Specialist, TaskAdapter
from ratchet.research.sessions import shared_prompt, system_prompt, user_prompt
from ratchet.sandbox import Bounds

OPT = Specialist(name="opt", preamble="Change only the optimiser.", domain="optimiser")
REG = Specialist(name="reg", preamble="Change only the regularisation.")


@pytest.fixture
def task(tmp_path: Path) -> TaskAdapter:
    root = tmp_path / "task"
    (root / "knowledge").mkdir(parents=True)
    (root / "knowledge" / "20-stack.md").write_text("The stack is shallow.")
    (root / "knowledge" / "10-begin.md").write_text("Begin with the rate.")
    (root / "knowledge" / "notes.txt").write_text("not for you")
    return TaskAdapter(
        name="widths",
        root=root,
        description="Find the width.",
        recipe=("recipe.py", "lib"),
        stage_files={"run.sh": "run.sh"},
        rules="- No cheating.",
        limits="- No more than two layers.",
        keep_semantics="- A tie is not better.",
        trial=Program(argv=("true",), bounds=Bounds(wall_seconds=12, memory_bytes=512 * 1024**2)),
        size_limit_bytes=4096,
        doers=(OPT, REG),
    )


def test_everything_but_the_own_part_is_the_same_for_all_specialists(task: TaskAdapter) -> None:
    one, other = system_prompt(task, OPT), system_prompt(task, REG)
    shared, _, _ = one.partition("opt\n\nYour domain")
    assert shared.endswith("# Your part: ")
    assert other.startswith(shared)
    assert one.endswith("Your domain is optimiser.\n\nChange only the optimiser.")
    assert other.endswith("Change only the regularisation.")


@pytest.mark.parametrize("way", list(Way))
def test_what_is_shared_may_be_put_together_once_for_all(task: TaskAdapter, way: Way) -> None:
    shared = shared_prompt(task, way=way)
    for specialist in (OPT, REG):
        assert system_prompt(task, specialist, way=way, shared=shared) == system_prompt(
            task, specialist, way=way
        )


def test_its_parts_come_in_their_order(task: TaskAdapter) -> None:
    told = system_prompt(task, OPT)
    parts = [
        "Find the width.",
        "Begin with the rate.",
        "The stack is shallow.",
        "Edit only recipe.py, lib.",
        "- No cheating.",
        "12 seconds and 512 MiB",
        "4096 bytes",
        "- No more than two layers.",
        "`submit_trial`",
        "higher is better",
        "- A tie is not better.",
        "Change only the optimiser.",
    ]
    places = [told.index(part) for part in parts]
    assert places == sorted(places)
    assert "not for you" not in told


def test_the_direction_and_the_rule_are_said(task: TaskAdapter) -> None:
    noisy = system_prompt(replace(task, direction=Direction.MIN, keep=KeepRule(most=7, held_out=True)), OPT)
    assert "lower is better" in noisy
    assert "measured several times next to the best" in noisy
    assert "no trial is scored on" in noisy
    strict = system_prompt(replace(task, keep=KeepRule(policy="strict")), OPT)
    assert "by however little" in strict


def test_all_offered_tools_are_named_and_no_others(task: TaskAdapter) -> None:
    told, alone = system_prompt(task, OPT), system_prompt(task, OPT, lineage=False)
    for name in ("read_lineage", "read_snapshot", "diff_snapshots", "write_lesson"):
        assert f"`{name}`" in told
        assert name not in alone
    for name in ("syntax_check", "submit_trial", "rebase_to", "read_output", "param_count"):
        assert f"`{name}`" in alone


def test_a_session_without_tools_is_told_how_to_end(task: TaskAdapter) -> None:
    told = system_prompt(task, OPT, way=Way.NONE)
    assert "HYPOTHESIS:" in told
    assert "submit_trial" not in told


def test_an_adapter_may_change_the_whole(task: TaskAdapter) -> None:
    @dataclass(kw_only=True)
    class Brief(TaskAdapter):
        def system_prompt(self, specialist: Specialist, prompt: str) -> str:
            return f"{specialist.name}: {len(prompt) > 100}"

    assert system_prompt(Brief(name="x", root=task.root, recipe=("recipe.py",)), OPT) == "opt: True"


def test_knowledge_that_is_no_text_or_too_much_is_refused(task: TaskAdapter) -> None:
    file = task.root / "knowledge" / "30.md"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Misuse, match=r"30\.md cannot be read"):
        system_prompt(task, OPT)
    file.write_text("x" * 400_001)
    with pytest.raises(Misuse, match="more than 400000 characters"):
        system_prompt(task, OPT)


def test_a_task_without_knowledge_is_fine(tmp_path: Path) -> None:
    assert "recipe.py" in system_prompt(TaskAdapter(name="bare", root=tmp_path, recipe=("recipe.py",)), OPT)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "lib").mkdir(parents=True)
    (place / "recipe.py").write_text("x = 1\n")
    (place / "lib" / "more.py").write_text("y = 22\n")
    (place / "other.py").write_text("z = 3\n")
    return place


def test_the_user_is_told_who_it_is_what_it_has_and_what_is_left(task: TaskAdapter, directory: Path) -> None:
    told = user_prompt(
        task,
        OPT,
        directory=directory,
        parent=7,
        lineage="BEST 007\n",
        limits=Limits(tokens=5000, cost_usd=1.5),
        seconds=1800,
        trials_left=40,
    )
    for part in (
        "You are opt",
        "BEST 007",
        "trial 007",
        "- recipe.py (6 bytes)",
        "- lib/more.py (7 bytes)",
        "not to change: run.sh",
        "trials of this session: 1",
        "trials of the run: 40",
        "30 minutes",
        "tokens: 5000",
        "money: $1.50",
        "`submit_trial`",
    ):
        assert part in told
    assert "other.py" not in told


def test_without_lineage_and_limits_nothing_is_said_of_them(task: TaskAdapter, directory: Path) -> None:
    told = user_prompt(task, OPT, directory=directory, parent=0, lineage="", way=Way.NONE)
    assert "# The run" not in told
    assert "tokens" not in told
    assert "`HYPOTHESIS: …`" in told
    assert "submit_trial" not in told


def test_no_more_trials_are_promised_than_the_run_has(task: TaskAdapter, directory: Path) -> None:
    several = replace(task, trials_per_session=5)
    told = user_prompt(several, OPT, directory=directory, parent=0, lineage="", trials_left=2)
    assert "trials of this session: 2" in told


def test_a_large_recipe_is_listed_in_short(task: TaskAdapter, directory: Path) -> None:
    for number in range(100):
        (directory / "lib" / f"part{number}.py").touch()
    told = user_prompt(task, OPT, directory=directory, parent=0, lineage="")
    assert "and 52 more files" in told


def test_the_files_of_the_recipe_are_listed_and_no_link_is_followed(
    task: TaskAdapter, directory: Path
) -> None:
    (directory / "a" / "b").mkdir(parents=True)
    (directory / "a" / "b" / "c.py").write_text("c\n")
    (directory / "a" / "b" / "not-this.py").write_text("c\n")
    (directory / "lib" / "inner").mkdir()
    (directory / "lib" / "inner" / "d.py").write_text("dd\n")
    (directory / "lib" / "link.py").symlink_to("/etc/passwd")
    (directory / "lib" / "elsewhere").symlink_to("/etc")
    (directory / "through").symlink_to("a")
    recipe = ("lib", "a/b/c.py", "through/b", "gone.py", "gone/too.py", "recipe.py/below")
    told = user_prompt(replace(task, recipe=recipe), OPT, directory=directory, parent=0, lineage="")
    listed = [line for line in told.splitlines() if line.endswith("bytes)")]
    assert listed == [
        "- a/b/c.py (2 bytes)",
        "- lib/inner/d.py (3 bytes)",
        "- lib/more.py (7 bytes)",
    ]
