"""What is said of tasks that keep the contract, and of such as do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.research.checker import Grade
from ratchet.research.tasks import scaffold
from tests.research.checker.folders import (
    COMMAND_TASK,
    NODE_EVALUATOR,
    NODE_RECIPE,
    NODE_TASK,
    write_command,
    write_node,
)
from tests.research.checker.trying import conformance, failures


def test_a_task_that_was_just_made_keeps_the_whole_contract(tmp_path: Path) -> None:
    found = conformance(scaffold("mine", tmp_path))
    assert {each.grade for each in found.values()} == {Grade.OK}
    assert "3 constants" in found["the search engine"].detail


def test_a_function_is_looked_at_from_all_sides(tmp_path: Path) -> None:
    found = conformance(write_node(tmp_path / "hill"))
    assert failures(found) == {}
    assert "height 0.55 in " in found["the baseline is measured"].detail
    assert "ms each" in found["noise over repeats"].detail
    assert "as the task says" in found["deterministic"].detail
    assert "count_lines answered" in found["tools answer"].detail
    assert "none is declared" in found["held-out split"].detail


@pytest.mark.soak
def test_a_command_is_looked_at_from_all_sides(tmp_path: Path) -> None:
    found = conformance(write_command(tmp_path / "sums"))
    assert failures(found) == {}
    assert "890 on the held-out split, 480 on the other" in found["held-out split"].detail
    assert "of 65,536 bytes" in found["the size limit has room"].detail


@pytest.mark.soak
def test_the_folder_of_the_task_stays_as_it_was(tmp_path: Path) -> None:
    folder = write_command(tmp_path / "sums")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    conformance(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_false_claim_to_be_deterministic_is_found(tmp_path: Path) -> None:
    lucky = NODE_EVALUATOR.replace('"height": 1 -', '"height": __import__("random").random() + 1 -')
    found = conformance(write_node(tmp_path / "lucky", evaluator=lucky))
    assert list(failures(found)) == ["deterministic"]
    assert "it says that it is deterministic, but seed 0 gave" in found["deterministic"].detail
    assert found["deterministic"].hint.startswith("set keep.deterministic = false")


def test_noise_that_a_task_admits_is_no_fault(tmp_path: Path) -> None:
    lucky = NODE_EVALUATOR.replace('"height": 1 -', '"height": __import__("random").random() + 1 -')
    task = NODE_TASK.replace("deterministic = true", "baseline_repeats = 4")
    found = conformance(write_node(tmp_path / "lucky", evaluator=lucky, task=task))
    assert failures(found) == {}
    assert "noise of its own" in found["deterministic"].detail
    assert "over 4 seeds" in found["noise over repeats"].detail


def test_repeats_that_are_not_needed_are_warned_of(tmp_path: Path) -> None:
    task = NODE_TASK.replace("deterministic = true", "")
    found = conformance(write_node(tmp_path / "hill", task=task))
    assert found["noise over repeats"].grade is Grade.WARNING
    assert "keep.deterministic = true" in found["noise over repeats"].hint


@pytest.mark.soak
def test_a_copy_of_the_evaluator_among_the_inputs_is_found(tmp_path: Path) -> None:
    folder = write_command(tmp_path / "sums")
    (folder / "inputs" / "notes.py").write_bytes((folder / "evaluator" / "evaluate.py").read_bytes())
    found = conformance(folder)
    assert "inputs/notes.py is evaluator/evaluate.py" in failures(found)["the evaluator is out of reach"]


@pytest.mark.soak
def test_held_out_inputs_among_the_inputs_are_found(tmp_path: Path) -> None:
    folder = write_command(tmp_path / "sums")
    (folder / "inputs" / "more.txt").write_bytes((folder / "held_out" / "numbers.txt").read_bytes())
    assert "held_out/numbers.txt" in failures(conformance(folder))["the evaluator is out of reach"]


def test_a_baseline_that_its_own_evaluator_refuses_is_found(tmp_path: Path) -> None:
    found = conformance(write_node(tmp_path / "hill", recipe=NODE_RECIPE.replace("0.9  #", "1.9  #")))
    assert "does not pass its own gate: outside of the map" in failures(found)["the baseline is measured"]
    assert "noise over repeats" not in found


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        ("def score(given):\n    return {'height': float('nan')}\n", "not JSON"),
        ("def score(given):\n    return {'height': 'high'}\n", "no finite number as 'height'"),
        ("def score(given):\n    return {}\n", "no finite number as 'height'"),
        ("def score(given):\n    raise KeyError('x')\n", "KeyError"),
    ],
)
def test_an_evaluator_that_gives_no_score_is_found(tmp_path: Path, evaluator: str, said: str) -> None:
    found = conformance(write_node(tmp_path / "hill", evaluator=evaluator))
    assert said in failures(found)["the baseline is measured"]


def test_a_split_that_is_no_other_is_warned_of(tmp_path: Path) -> None:
    task = NODE_TASK.replace("deterministic = true", "deterministic = true\nheld_out = true")
    found = conformance(write_node(tmp_path / "hill", task=task))
    assert found["held-out split"].grade is Grade.WARNING
    assert "both splits give the same score" in found["held-out split"].detail


@pytest.mark.soak
def test_limits_that_the_baseline_nearly_reaches_are_warned_of(tmp_path: Path) -> None:
    waits = NODE_RECIPE.replace("    return", "    __import__('time').sleep(0.7)\n    return")
    task = NODE_TASK.replace("seconds = 5.0\nmemory", "seconds = 1.2\nmemory")
    found = conformance(write_node(tmp_path / "hill", recipe=waits, task=task))
    assert found["limits have room"].grade is Grade.WARNING
    assert "the trial's 1.2 s" in found["limits have room"].detail


def test_a_recipe_that_fills_its_size_is_warned_of(tmp_path: Path) -> None:
    task = f"{NODE_TASK}\n[size]\nlimit_bytes = {len(NODE_RECIPE) + 5}\n"
    found = conformance(write_node(tmp_path / "hill", task=task))
    assert found["the size limit has room"].grade is Grade.WARNING


def test_a_recipe_above_its_size_is_refused_by_preflight(tmp_path: Path) -> None:
    task = f"{NODE_TASK}\n[size]\nlimit_bytes = 10\n"
    found = failures(conformance(write_node(tmp_path / "hill", task=task)))
    assert {"the size limit has room", "preflight accepts the baseline"} <= set(found)


def test_a_recipe_without_declared_constants_is_said_to_have_none(tmp_path: Path) -> None:
    plain = NODE_RECIPE.replace("  # search: 0.0..1.0", "")
    found = conformance(write_node(tmp_path / "hill", recipe=plain))
    assert found["the search engine"].grade is Grade.WARNING
    assert "no constant is declared" in found["the search engine"].detail


def test_a_declaration_that_makes_no_sense_is_found(tmp_path: Path) -> None:
    wrong = NODE_RECIPE.replace("0.0..1.0", "9..1", 1)
    assert (
        "recipe.py" in failures(conformance(write_node(tmp_path / "hill", recipe=wrong)))["the search engine"]
    )


def test_a_tool_that_does_not_answer_is_found(tmp_path: Path) -> None:
    task = NODE_TASK.replace('["wc", "-l", "recipe.py"]', '["wc", "-l", "absent.py"]')
    found = failures(conformance(write_node(tmp_path / "hill", task=task)))
    assert "count_lines does not answer" in found["tools answer"]


def test_a_tool_is_asked_for_what_its_schema_wants(tmp_path: Path) -> None:
    schema = '{ type = "object", required = ["n"], properties = { n = { type = "integer", minimum = 7 } } }'
    check = "import json, sys; assert json.load(sys.stdin)['given'] == {'n': 7}"
    argv = f'["{{python}}", "-c", "{check}"]'
    task = NODE_TASK.replace('["wc", "-l", "recipe.py"]', f"{argv}\ninput_schema = {schema}")
    assert failures(conformance(write_node(tmp_path / "hill", task=task))) == {}


def test_knowledge_that_is_no_text_is_found(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "hill")
    (folder / "knowledge").mkdir()
    (folder / "knowledge" / "INIT.md").write_bytes(b"\xff\xfe")
    assert "INIT.md" in failures(conformance(folder))["prompts can be built"]


def test_a_task_with_code_that_breaks_is_a_finding_and_no_crash(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "hill")
    (folder / "task.py").write_text(
        "from ratchet.research.adapter import TaskAdapter\n"
        "class Mine(TaskAdapter):\n"
        "    def preamble(self, specialist):\n"
        "        return 1 / 0\n"
    )
    assert failures(conformance(folder))["prompts can be built"].startswith("ZeroDivisionError")


@pytest.mark.soak
def test_held_out_inputs_that_nobody_uses_are_warned_of(tmp_path: Path) -> None:
    task = COMMAND_TASK.replace("held_out = true\nheld_out_tolerance = 1000.0", "held_out = false")
    found = conformance(write_command(tmp_path / "sums", task=task))
    assert found["held-out split"].grade is Grade.WARNING
