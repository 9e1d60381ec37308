"""nanotree: a recipe of several files that learns a world and is asked about it, with the answers kept elsewhere."""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.measurement.result import Unmeasured
from tests.research.shipped.trying import SHIPPED, Laboratory, shipped

FOLDER = SHIPPED / "nanotree"


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(shipped("nanotree"), tmp_path / "laboratory")


def right_choices(held_out: bool = False) -> dict[tuple[str, frozenset[str]], str]:
    kept = json.loads((FOLDER / "evaluator" / "questions.json").read_text())
    split = kept["held_out" if held_out else "visible"]
    return {(each["context"], frozenset(each["choices"])): each["choices"][0] for each in split}


def perfect(laboratory: Laboratory, **split: Any) -> list[int]:
    right = right_choices(split.get("held_out", False))
    questions = laboratory.question(**split)["questions"]
    return [each["choices"].index(right[each["context"], frozenset(each["choices"])]) for each in questions]


def scored(laboratory: Laboratory, tmp_path: Path, answers: object, **split: Any) -> dict[str, Any]:
    content = answers if isinstance(answers, bytes) else json.dumps(answers).encode()
    (tmp_path / "answers.json").write_bytes(content)
    return laboratory.score([tmp_path], **split)


@pytest.mark.soak
@pytest.mark.parametrize("held_out", [False, True])
def test_the_baseline_is_scored_and_has_learned_something(laboratory: Laboratory, held_out: bool) -> None:
    measured = laboratory.measure(held_out=held_out)
    assert measured.measurements["core_facts"] > 0.1
    assert -0.2 < measured.score < 0.6


@pytest.mark.parametrize("held_out", [False, True])
def test_perfect_answers_score_one_whatever_the_seed(
    laboratory: Laboratory, tmp_path: Path, held_out: bool
) -> None:
    for seed in (0, 7):
        split = {"seed": seed, "held_out": held_out}
        assert scored(laboratory, tmp_path, perfect(laboratory, **split), **split)["core"] == pytest.approx(
            1.0
        )


def test_guessing_scores_about_zero_and_being_wrong_costs(laboratory: Laboratory, tmp_path: Path) -> None:
    right = perfect(laboratory)
    first = scored(laboratory, tmp_path, [0] * len(right))
    wrong = scored(laboratory, tmp_path, [1 - min(choice, 1) for choice in right])
    assert abs(first["core"]) < 0.2
    assert wrong["core"] < -0.3
    assert wrong["measurements"]["right"] == 0


def test_no_kind_of_question_outweighs_another(laboratory: Laboratory, tmp_path: Path) -> None:
    answer = scored(laboratory, tmp_path, perfect(laboratory))
    kinds = {name for name in answer["measurements"] if name.startswith("core_")}
    assert kinds == {"core_facts", "core_agreement", "core_sums", "core_bindings"}
    assert kinds < set(laboratory.task.columns)


def test_questions_do_not_tell_their_answers(laboratory: Laboratory) -> None:
    questions = laboratory.question()["questions"]
    assert {frozenset(each) for each in questions} == {frozenset({"context", "choices"})}
    places = Counter(perfect(laboratory))
    assert min(places[place] for place in range(4)) > len(questions) / 12


def test_the_seed_decides_the_order_of_questions_and_choices(laboratory: Laboratory) -> None:
    first, again, other = (laboratory.question(seed=seed)["questions"] for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert right_choices().keys() == {(each["context"], frozenset(each["choices"])) for each in other}
    assert perfect(laboratory, seed=3) != perfect(laboratory, seed=4)


def test_no_sum_that_is_asked_is_in_the_corpus(laboratory: Laboratory) -> None:
    for split, held_out in {"inputs": False, "held_out": True}.items():
        corpus = (FOLDER / split / "corpus.txt").read_text()
        sums = [context for context, _ in right_choices(held_out) if context.endswith(" make")]
        assert len(sums) == 40
        assert not [each for each in sums if f"\n{each} " in corpus]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[" * 60_000, id="nested"),
        pytest.param(pickle.dumps([0] * 257), id="pickle"),
        pytest.param([], id="none"),
        pytest.param([0] * 256, id="too few"),
        pytest.param([0] * 258, id="too many"),
        pytest.param([4] * 257, id="a choice that is not there"),
        pytest.param([-1] * 257, id="negative"),
        pytest.param([True] * 257, id="truths"),
        pytest.param([0.0] * 257, id="with a point"),
        pytest.param([float("nan")] * 257, id="NaN"),
        pytest.param(["0"] * 257, id="texts"),
        pytest.param([10**300] * 257, id="huge numbers"),
        pytest.param({"core": 1.0}, id="a score"),
        pytest.param([0] * 100_000, id="a flood"),
    ],
)
def test_what_is_not_a_list_of_answers_is_disqualified(
    laboratory: Laboratory, tmp_path: Path, answers: object
) -> None:
    answer = scored(laboratory, tmp_path, answers)
    assert answer["status"] == "disqualified"
    assert "core" not in answer


def test_such_a_list_has_a_score_when_nothing_is_wrong_with_it(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    assert scored(laboratory, tmp_path, [0] * 257)["measurements"]["questions"] == 257


def absent(path: Path) -> None:
    assert not path.exists()


def a_link_to_the_questions(path: Path) -> None:
    path.symlink_to(FOLDER / "evaluator" / "questions.json")


@pytest.mark.parametrize("make", [absent, os.mkfifo, os.mkdir, a_link_to_the_questions])
def test_what_is_not_a_plain_file_is_disqualified(
    laboratory: Laboratory, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "answers.json")
    answer = laboratory.score([tmp_path])
    assert answer["status"] == "disqualified"
    assert "answers.json" in answer["invalid"]


def test_a_recipe_cannot_read_the_answers(laboratory: Laboratory) -> None:
    stealing = f"print(open({str(FOLDER / 'evaluator' / 'questions.json')!r}).read())\n"
    with pytest.raises(Unmeasured, match="FileNotFoundError") as caught:
        laboratory.measure({"recipe/train.py": stealing})
    assert caught.value.status is TrialStatus.CRASH


def test_answers_that_were_brought_along_fail_in_the_held_out_world(laboratory: Laboratory) -> None:
    remembered = {
        "recipe/train.py": "import json, pathlib, sys\n"
        f"right = dict({list(right_choices().items())!r})\n"
        "asked = json.load(sys.stdin)['question']['questions']\n"
        "found = [right.get((each['context'], frozenset(each['choices']))) for each in asked]\n"
        "known = zip((each['choices'] for each in asked), found)\n"
        "answers = [choices.index(word) if word in choices else 0 for choices, word in known]\n"
        "pathlib.Path(sys.argv[2], 'answers.json').write_text(json.dumps(answers))\n"
    }
    assert laboratory.measure(remembered).score == pytest.approx(1.0)
    assert laboratory.measure(remembered, held_out=True).score < 0.3


@pytest.mark.parametrize(("variant", "names"), [("single", 1), ("generic", 4)])
def test_a_variant_changes_only_who_works_on_it(laboratory: Laboratory, variant: str, names: int) -> None:
    task, other = laboratory.task, shipped("nanotree", variant)
    assert len(other.doers) == names
    assert (other.trial, other.evaluator, other.keep) == (task.trial, task.evaluator, task.keep)


@pytest.mark.soak
def test_a_short_search_finds_a_better_tree(laboratory: Laboratory) -> None:
    baseline, best, changed = laboratory.search(trials=15)
    assert best > baseline + 0.1
    names = ("tokenizer", "data", "model", "train", "answer")
    assert {f"recipe/{name}.py" for name in names} <= changed
