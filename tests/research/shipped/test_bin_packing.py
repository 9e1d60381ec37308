"""The bin packing task: what its recipe can do, and what its evaluator lets nobody get away with."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.research.shipped.nodes import SHIPPED, NodeTask, edited

ORIGINAL = NodeTask.shipped("bin_packing")

# Two twins that part at their fourth item, and what first fit makes of them.
SMALL = {"capacity": 10, "instances": [[6, 5, 4, 7, 3], [6, 5, 4, 2, 2]]}
PACKED = [[0, 1, 0, 2, 1], [0, 1, 0, 1, 1]]


def reason(assignments: Any) -> str:
    told: dict[str, str] = ORIGINAL.score({"assignments": assignments}, SMALL)
    assert list(told) == ["invalid"], told
    return told["invalid"]


@pytest.mark.parametrize(("held_out", "capacity", "sizes"), [(False, 100, (1, 100)), (True, 150, (20, 100))])
def test_every_instance_has_a_twin_that_goes_on_otherwise(
    held_out: bool, capacity: int, sizes: tuple[int, int]
) -> None:
    question = ORIGINAL.question(7, held_out=held_out)

    instances = question["instances"]
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True)))
        for one, other in combinations(instances, 2)
    ]
    assert question["capacity"] == capacity
    assert sorted(length > len(instances[0]) // 4 for length in shared) == [False] * 4 + [True] * 2
    assert all(length < len(instances[0]) for length in shared)
    assert all(sizes[0] <= item <= sizes[1] for items in instances for item in items)


def test_a_seed_always_makes_the_same_question_and_another_one_a_new_one() -> None:
    assert ORIGINAL.question(3) == ORIGINAL.question(3)
    assert ORIGINAL.question(3) != ORIGINAL.question(4)


def test_the_question_does_not_say_which_split_it_is() -> None:
    assert set(ORIGINAL.question(0)) == set(ORIGINAL.question(0, held_out=True)) == {"capacity", "instances"}


@pytest.mark.soak
def test_the_recipe_starts_as_best_fit() -> None:
    plain = _plain_table()

    for held_out, family in ((False, "Weibull"), (True, "uniform")):
        answer = ORIGINAL.measured(ORIGINAL.recipe, ORIGINAL.question(0, held_out=held_out))
        assert answer["excess"] == pytest.approx(plain[family, "best fit"], abs=0.005)


@pytest.mark.soak
def test_a_rule_that_shuns_dead_gaps_beats_best_fit_on_both_families() -> None:
    better = edited(ORIGINAL.recipe, TIGHT=0.04, DEAD=0.25, PENALTY=2.0)

    for held_out in (False, True):
        question = ORIGINAL.question(1, held_out=held_out)
        gain = (
            ORIGINAL.measured(ORIGINAL.recipe, question)["excess"]
            - ORIGINAL.measured(better, question)["excess"]
        )
        assert gain > 1.5


@pytest.mark.soak
def test_a_rule_that_fits_one_family_only_loses_more_on_the_other_than_is_tolerated() -> None:
    fitted = edited(ORIGINAL.recipe, TIGHT=0.02, DEAD=0.35, PENALTY=2.0, FALL=0.9)

    searched, held_out = ORIGINAL.question(0), ORIGINAL.question(0, held_out=True)

    assert ORIGINAL.measured(fitted, searched)["excess"] < 2.0
    lost = (
        ORIGINAL.measured(fitted, held_out)["excess"] - ORIGINAL.measured(ORIGINAL.recipe, held_out)["excess"]
    )
    assert lost > ORIGINAL.adapter.keep.held_out_tolerance


@pytest.mark.soak
def test_the_search_engine_finds_a_rule_that_is_clearly_better_than_best_fit(tmp_path: Path) -> None:
    question = ORIGINAL.question(0)

    scores = ORIGINAL.search(tmp_path, 25, question)

    assert min(scores) < ORIGINAL.measured(ORIGINAL.recipe, question)["excess"] - 1.0


def test_the_excess_is_counted_from_the_bins_that_were_opened() -> None:
    answer = ORIGINAL.score({"assignments": PACKED}, SMALL)

    assert answer["excess"] == pytest.approx(100 * (5 - 5) / 5)
    assert answer["measurements"] == {"bins": 5.0, "bound": 5.0, "worst": 0.0}


def test_a_bin_that_is_filled_to_the_brim_is_allowed_and_one_more_is_not() -> None:
    assert "holds more than 10" in reason([[0, 0, 1, 2, 1], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("chosen", [-1, 4, 10**30, True, 1.0, "1", None, [1], {}])
def test_a_bin_that_is_none_is_refused(chosen: Any) -> None:
    assert "instance 1, item 4: its bin must be one of the 2 opened" in reason(
        [PACKED[0], [0, 1, 0, 1, chosen]]
    )


@pytest.mark.parametrize(
    "assignments",
    [
        None,
        {},
        "00000",
        [],
        PACKED[:1],
        [*PACKED, PACKED[0]],
        [PACKED[0], PACKED[1][:4]],
        [PACKED[0], [*PACKED[1], 0]],
        [PACKED[0], "01011"],
        [PACKED[0], {"0": 0, "1": 1, "2": 0, "3": 1, "4": 1}],
    ],
)
def test_an_answer_of_another_shape_is_refused(assignments: Any) -> None:
    assert "must" in reason(assignments)


@pytest.mark.parametrize("answer", [None, 0.0, [], {}, {"excess": 0.0}, {"assignments": PACKED, "bins": 1}])
def test_what_the_recipe_says_about_its_score_is_not_read(answer: Any) -> None:
    assert "nothing else" in ORIGINAL.score(answer, SMALL)["invalid"]


def test_the_same_beginning_must_be_packed_the_same() -> None:
    assert "begin with the same 3 items" in reason([PACKED[0], [0, 1, 2, 1, 1]])


LOOKING_AHEAD = {
    "packs the instance as a whole": """
def assign(items, capacity):
    order = sorted(range(len(items)), key=lambda place: -items[place])
    room, chosen = [], [0] * len(items)
    for place in order:
        fits = [bin for bin, left in enumerate(room) if left >= items[place]][:1]
        if not fits:
            room.append(capacity)
            fits = [len(room) - 1]
        room[fits[0]] -= items[place]
        chosen[place] = fits[0]
    names = {}
    return [names.setdefault(bin, len(names)) for bin in chosen]
""",
    "tunes itself to all of the items": """
def assign(items, capacity):
    room, chosen = [], []
    spare = sum(items) % 7
    for item in items:
        fits = [bin for bin, left in enumerate(room) if left >= item + spare][:1]
        if not fits:
            room.append(capacity)
            fits = [len(room) - 1]
        room[fits[0]] -= item
        chosen.append(fits[0])
    return chosen
""",
    "draws lots": """
import random

def assign(items, capacity):
    room, chosen = [], []
    for item in items:
        fits = [bin for bin, left in enumerate(room) if left >= item]
        if not fits:
            room.append(capacity)
            fits = [len(room) - 1]
        chosen.append(random.choice(fits))
        room[chosen[-1]] -= item
    return chosen
""",
}


@pytest.mark.parametrize("trick", LOOKING_AHEAD)
def test_a_recipe_that_decides_by_more_than_what_has_come_is_caught(trick: str) -> None:
    recipe = LOOKING_AHEAD[trick] + (
        "\ndef pack(request):\n"
        "    question = request['question']\n"
        "    return {'assignments': [assign(each, question['capacity']) for each in question['instances']]}\n"
    )

    answer = ORIGINAL.measured(recipe, ORIGINAL.question(0))

    assert "must not look ahead" in answer["invalid"]


def test_the_plain_baselines_can_be_run_and_best_fit_is_the_better_one() -> None:
    plain = _plain_table()

    assert plain["Weibull", "best fit"] < plain["Weibull", "first fit"]
    assert plain["uniform", "best fit"] < plain["uniform", "first fit"]


def _plain_table() -> dict[tuple[str, str], float]:
    """What `plain.py` prints for one seed."""
    command = [sys.executable, str(SHIPPED / "bin_packing" / "plain.py"), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {(row[0], f"{row[1]} {row[2]}"): float(row[3]) for row in rows}
