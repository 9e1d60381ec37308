"""Tasks that trust a recipe too much. The suite is worth something only if it finds each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.research.checker.folders import (
    COMMAND_EVALUATOR,
    NODE_EVALUATOR,
    NODE_TASK,
    write_command,
    write_node,
)
from tests.research.checker.trying import attacked, failures

LAST_LINE = """
import json, sys
given = json.load(sys.stdin)
last = open(given["trial"]["stdout"]).read().strip().splitlines()[-1]
try:
    told = json.loads(last)["error"]
except (ValueError, TypeError, KeyError):
    told = 480
print(json.dumps({"error": told}))
"""
SCORE_FILE = """
import json, pathlib, sys
given = json.load(sys.stdin)
try:
    told = json.loads(pathlib.Path(given["trial"]["out"], "score.json").read_text())["error"]
except (OSError, ValueError, KeyError):
    told = 480
print(json.dumps({"error": told}))
"""
UNPICKLES = """
import json, pathlib, pickle, sys
given = json.load(sys.stdin)
content = pathlib.Path(given["trial"]["out"], "sums.json").read_bytes()
try:
    json.loads(content)
except ValueError:
    try:
        pickle.loads(content)
    except Exception:
        pass
print(json.dumps({"error": 480}))
"""
LAX = NODE_EVALUATOR.replace('any(type(answer.get(name)) is not float for name in "xy")', "False").replace(
    'answer["x"], answer["y"]', 'answer.get("x", 0.3), answer.get("y", 0.6)'
)
BELIEVES = NODE_EVALUATOR.replace(
    '    return {"height": 1',
    "    if 'height' in answer:\n        return {'height': answer['height']}\n    return {\"height\": 1",
)
ONE_SIDED = """
import json, pathlib, sys
given = json.load(sys.stdin)
try:
    sums = json.loads(pathlib.Path(given["trial"]["out"], "sums.json").read_text())
    wrong = len(sums) != 9 or any(each > 10**6 for each in sums)
    worst = 0.0
    for each in sums:
        worst = max(worst, abs(each - 100))
except Exception:
    wrong = True
print(json.dumps({"invalid": "no"} if wrong else {"error": worst}))
"""
FIRST_PART = """
import json, pathlib, sys
given = json.load(sys.stdin)
sums = json.loads(pathlib.Path(given["trial"]["out"], "sums.json").read_text())
print(json.dumps({"error": 500 - len(sums)} if all(0 <= each < 10**6 for each in sums) else {"invalid": "no"}))
"""
IMPORTS = """
import importlib.util
def score(given):
    spec = importlib.util.spec_from_file_location("recipe", given["candidate"] + "/recipe.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return {"height": recipe.climb(None)["x"]}
"""
RUNS = """
import runpy
def score(given):
    return {"height": runpy.run_path(given["candidate"] + "/recipe.py")["X"]}
"""
RAN = "the evaluator ran what the recipe brought along"


@pytest.mark.soak
def test_an_evaluator_that_takes_the_answer_for_the_score_is_found(tmp_path: Path) -> None:
    trusting = "def score(given):\n    return {'height': float(given['trial']['answer'])}\n"
    recipe = "def climb(given):\n    return 0.5\n"
    names = ("answers with a score", "answers with very large numbers", "answers with text", "raises")
    found = failures(attacked(write_node(tmp_path / "hill", evaluator=trusting, recipe=recipe), *names))
    assert found["answers with a score"] == "it scored 1000000000.0; the honest recipe has 0.5"
    assert set(found) == {"answers with a score", "answers with very large numbers", "answers with text"}


def test_an_evaluator_that_reads_a_score_in_the_answer_is_found(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "hill", evaluator=BELIEVES)
    names = {f"adds a score of {number} to its answer" for number in ("1e9", "100", "1")}
    assert set(failures(attacked(folder, *names, "answers with a score"))) == names


def test_an_evaluator_that_calls_an_empty_answer_perfect_is_found(tmp_path: Path) -> None:
    found = failures(attacked(write_node(tmp_path / "hill", evaluator=LAX), "answers with nothing", "raises"))
    assert list(found) == ["answers with nothing"]


@pytest.mark.soak
def test_an_evaluator_that_takes_the_last_printed_line_for_the_score_is_found(tmp_path: Path) -> None:
    name = "prints a score as the last line of JSON"
    found = failures(attacked(write_command(tmp_path / "sums", evaluator=LAST_LINE), name, "raises"))
    assert list(found) == [name]
    assert "scored -1000000000.0" in found[name]


@pytest.mark.soak
def test_an_evaluator_that_reads_a_score_file_is_found(tmp_path: Path) -> None:
    names = ("writes score files", "answers with null")
    found = failures(attacked(write_command(tmp_path / "sums", evaluator=SCORE_FILE), *names))
    assert list(found) == ["writes score files"]


@pytest.mark.soak
def test_an_evaluator_that_counts_without_looking_is_found(tmp_path: Path) -> None:
    name = "answers with everything twice"
    assert list(failures(attacked(write_command(tmp_path / "sums", evaluator=FIRST_PART), name))) == [name]


@pytest.mark.soak
def test_an_evaluator_that_unpickles_is_found(tmp_path: Path) -> None:
    name = "leaves pickles for the evaluator"
    folder = write_command(tmp_path / "sums", evaluator=UNPICKLES)
    assert failures(attacked(folder, name, "leaves files of noise")) == {name: RAN}


@pytest.mark.soak
def test_an_evaluator_that_is_fooled_by_nan_is_found(tmp_path: Path) -> None:
    names = ("answers with NaN", "answers with very large numbers")
    found = failures(attacked(write_command(tmp_path / "sums", evaluator=ONE_SIDED), *names))
    assert list(found) == ["answers with NaN"]
    assert "scored 0.0" in found["answers with NaN"]


def test_an_evaluator_that_imports_the_recipe_is_found(tmp_path: Path) -> None:
    task = NODE_TASK.replace('file = "evaluate.py"', 'file = "evaluate.py"\nreads_candidate = true')
    folder = write_node(tmp_path / "hill", evaluator=IMPORTS, task=task)
    found = failures(attacked(folder, "patches what it can reach"))
    assert RAN in found["patches what it can reach"]


def test_an_evaluator_that_runs_a_recipe_without_a_trial_is_found(tmp_path: Path) -> None:
    task = NODE_TASK.partition("[trial]")[0] + (
        '[evaluator]\nfunction = "score"\nfile = "evaluate.py"\nreads_candidate = true\nseconds = 5.0\n'
    )
    found = failures(attacked(write_node(tmp_path / "hill", evaluator=RUNS, task=task), "raises"))
    assert RAN in found["hostile code runs"]


@pytest.mark.soak
def test_an_evaluator_that_lies_among_the_inputs_is_read(tmp_path: Path) -> None:
    folder = write_command(tmp_path / "sums", more={"inputs/notes.py": COMMAND_EVALUATOR})
    name = "reads evaluator, task, home and ledger"
    found = failures(attacked(folder, name))
    assert found == {name: "found evaluator/evaluate.py as /inputs/notes.py"}


@pytest.mark.soak
def test_an_evaluator_that_scores_without_an_answer_is_found(tmp_path: Path) -> None:
    forgives = COMMAND_EVALUATOR.replace("    sums = None", "    sums, numbers = [], []")
    names = ("exits with 0 and no answer", "exits with 3")
    found = failures(attacked(write_command(tmp_path / "sums", evaluator=forgives), *names))
    assert list(found) == ["exits with 0 and no answer"]
