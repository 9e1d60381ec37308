from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ratchet
from tests.cli.program import Program
from tests.research.checker.folders import NODE_EVALUATOR, write_node


def test_a_new_task_is_made_and_passes_its_check(ratchet: Ratchet, tmp_path: Path) -> None:
    made = ratchet("research", "new", "mine", "--directory", str(tmp_path))
    assert made.code == 0
    assert f"ratchet research check {tmp_path / 'mine'} --attack" in made.out
    done = ratchet("research", "check", str(tmp_path / "mine"))
    assert done.code == 0, done.out
    assert done.out.splitlines()[-1] == "14 ok, 0 warnings, 0 failed"
    assert "task: the baseline is measured" in done.out


def test_a_task_is_made_once(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("research", "new", "mine", "--directory", str(tmp_path), "--json").json == {
        "task": "mine",
        "path": str(tmp_path / "mine"),
    }
    again = ratchet("research", "new", "mine", "--directory", str(tmp_path))
    assert again.code != 0
    assert "exists already" in again.err


def test_what_failed_is_told_with_how_to_mend_it(ratchet: Ratchet, tmp_path: Path) -> None:
    lucky = NODE_EVALUATOR.replace('"height": 1 -', '"height": __import__("random").random() + 1 -')
    folder = str(write_node(tmp_path / "lucky", evaluator=lucky))
    told = ratchet("research", "check", folder)
    assert told.code == 1
    assert "failed" in told.out
    assert "to fix: set keep.deterministic = false" in told.out
    document = ratchet("research", "check", folder, "--json")
    assert document.code == 1
    assert document.json["ok"] is False
    assert document.json["counts"]["failed"] == 1
    [failed] = [each for each in document.json["findings"] if each["grade"] == "failed"]
    assert (failed["part"], failed["what"]) == ("task", "deterministic")
    assert set(failed) == {"part", "what", "grade", "detail", "hint", "expected", "seen", "seconds"}


def test_a_task_that_cannot_be_read_is_a_finding(ratchet: Ratchet, tmp_path: Path) -> None:
    folder = write_node(tmp_path / "hill")
    (folder / "task.toml").write_text('[task]\nname = "hill"\nrecip = ["recipe.py"]\n')
    done = ratchet("research", "check", str(folder), "--json")
    assert done.code == 1
    [finding] = done.json["findings"]
    assert (finding["what"], finding["grade"]) == ("the task reads", "failed")
    assert "recip" in finding["detail"]


def test_a_task_that_is_not_there_is_misuse(ratchet: Ratchet, tmp_path: Path) -> None:
    done = ratchet("research", "check", str(tmp_path / "absent"))
    assert done.code == 2
    assert "no directory" in done.err
    named = ratchet("research", "check", "circle_pakcing")
    assert named.code == 2
    assert "circle_packing" in named.err


def test_a_check_makes_no_ledger(ratchet: Ratchet, home: Path, tmp_path: Path) -> None:
    assert ratchet("research", "check", str(write_node(tmp_path / "hill"))).code == 0
    assert not home.exists()


def test_installed_tasks_are_listed(ratchet: Ratchet) -> None:
    done = ratchet("research", "tasks", "--json")
    assert done.code == 0
    [circles] = [each for each in done.json if each["name"] == "circle_packing"]
    assert (circles["kind"], circles["direction"], circles["score_field"]) == ("function", "max", "sum_radii")
    assert circles["known_best"]
    assert circles["problem"] is None
    assert "circle_packing" in ratchet("research", "tasks").out


@pytest.mark.soak
def test_the_whole_suite_passes_on_a_new_task(plain_program: Program, tmp_path: Path) -> None:
    assert plain_program("research", "new", "mine").code == 0
    done = plain_program("research", "check", "./mine", "--attack", "--json", seconds=280)
    document = json.loads(done.out)
    assert [each for each in document["findings"] if each["grade"] == "failed"] == []
    assert done.code == 0, done.err
    assert {each["part"] for each in document["findings"]} == {"task", "attack", "evaluator", "machine"}
    assert len(document["findings"]) > 80


def test_strategies_are_compared_for_nothing_and_always_with_the_plain_baselines(
    ratchet: Ratchet, home: Path
) -> None:
    wanted = ("--landscape", "hill", "--strategies", "greedy", "--trials", "8", "--seeds", "2")
    done = ratchet("research", "compare", *wanted, "--json")
    assert done.code == 0, done.err
    assert [arm["strategy"] for arm in done.json["arms"]] == ["greedy", "best_of_n", "sequential"]
    assert set(done.json["arms"][0]["bands"]) == {"1", "2", "4", "8"}
    assert "| best_of_n |" in ratchet("research", "compare", *wanted).out
    assert not home.exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "name one TASK, or --landscape hill"),
        (("--landscape", "hill", "--recorded", "1"), "name one TASK"),
        (("--landscape", "moon"), "there are hill, rugged"),
        (("--landscape", "hill", "--strategies", "clever"), "there are greedy, islands"),
        (("--landscape", "hill", "--noise", "nan"), "nan is not a number from 0"),
        (("--landscape", "hill", "--engine", "search"), "for real runs on a task"),
        (("circle_packing", "--noise", "0.1"), "for simulated ones"),
    ],
)
def test_a_comparison_that_cannot_be_meant_says_what_can(
    words: tuple[str, ...], reason: str, ratchet: Ratchet
) -> None:
    done = ratchet("research", "compare", *words)
    assert done.code == 2
    assert reason in done.err


STEPPER = (
    """[engines.command.stepper]
argv = ["python3", "-c", """
    + json.dumps(
        "import random; open('recipe.py', 'a').write('Z = ' + str(random.random()) + chr(10)); "
        "print('HYPOTHESIS: another line may be better than none')"
    )
    + """]
edits_files = true
"""
)


@pytest.mark.soak
def test_arms_on_a_task_are_runs_and_a_comparison_typed_again_continues_with_them(
    ratchet: Ratchet, home: Path, tmp_path: Path
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "ratchet.toml").write_text(STEPPER)
    folder = str(write_node(tmp_path / "hill"))
    wanted = ("research", "compare", folder, "--engine", "stepper", "--strategies", "greedy", "--trials", "2")
    first = ratchet(*wanted, "--seeds", "1", "--json")
    assert first.code == 0, first.err
    assert [arm["runs"] for arm in first.json["arms"]] == [1, 1, 1]
    again = ratchet(*wanted, "--seeds", "2", "--json")
    assert again.code == 0, again.err
    assert [arm["runs"] for arm in again.json["arms"]] == [2, 2, 2]
    assert len(ratchet("research", "list", "--json").json) == 6
    recorded = ratchet("research", "compare", "--recorded", "1")
    assert recorded.code == 2
    assert "20 are needed" in recorded.err
