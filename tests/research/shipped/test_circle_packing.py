"""The circle packing task: what its recipe can do, and what its evaluator lets nobody get away with."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.research.shipped.nodes import SHIPPED, NodeTask, edited

ORIGINAL = NodeTask.shipped("circle_packing")

Circles = list[Any]


def touching() -> Circles:
    """Two circles that touch each other and the walls exactly, and 24 points."""
    points: Circles = [[number / 32, 0.75, 0] for number in range(24)]
    return [[0.25, 0.25, 0.25], [0.75, 0.25, 0.25], *points]


def reason(answer: Any) -> str:
    told: dict[str, str] = ORIGINAL.score(answer)
    assert list(told) == ["invalid"], told
    return told["invalid"]


def test_the_recipe_starts_poor() -> None:
    answer = ORIGINAL.measured(ORIGINAL.recipe)

    assert answer["sum_radii"] == pytest.approx(26 / 12)
    assert answer["measurements"]["below_known_best"] == pytest.approx(2.6359830853 - 26 / 12)


@pytest.mark.parametrize("layout", ["rows", "rings", "scattered"])
@pytest.mark.parametrize("rows", [3, 5, 8])
def test_every_layout_settles_into_a_packing_that_passes_the_exact_check(layout: str, rows: int) -> None:
    recipe = edited(
        ORIGINAL.recipe, LAYOUT=layout, ROWS=rows, STAGGER=0.7, JITTER=0.1, STEPS=9, TRUST=0.05, KICKS=1
    )

    assert 2.3 < ORIGINAL.measured(recipe)["sum_radii"] < 2.636


def test_the_same_recipe_gives_the_same_packing_to_the_last_bit() -> None:
    recipe = edited(ORIGINAL.recipe, LAYOUT="scattered", STEPS=5, TRUST=0.1, KICKS=2, KICKED=26, KICK=0.5)

    assert ORIGINAL.trial(recipe).value == ORIGINAL.trial(recipe).value


@pytest.mark.soak
def test_the_search_engine_makes_a_good_packing_of_the_poor_one(tmp_path: Path) -> None:
    scores = ORIGINAL.search(tmp_path, 25)

    assert max(scores) > 2.58


def test_circles_that_touch_exactly_are_a_packing() -> None:
    answer = ORIGINAL.score({"circles": touching()})

    assert answer["sum_radii"] == 0.5
    assert answer["measurements"]["smallest_radius"] == 0.0


@pytest.mark.parametrize("over", [1e-12, 1e-15, 2**-54])
def test_an_overlap_of_less_than_any_tolerance_is_one(over: float) -> None:
    circles = touching()
    circles[1] = [0.75 - over * 4, 0.25, 0.25]

    assert "circles 0 and 1 overlap" in reason({"circles": circles})


@pytest.mark.parametrize("radius", [math.nextafter(0.25, 1), 0.25 + 1e-12])
def test_a_circle_that_leaves_the_square_by_the_last_bit_is_refused(radius: float) -> None:
    circles = touching()
    circles[0] = [0.25, 0.25, radius]

    assert "circle 0 leaves the square" in reason({"circles": circles})


def test_an_overlap_that_rounding_would_hide_is_seen() -> None:
    circles = touching()
    # A point where the two circles touch, with the smallest radius that there is.
    circles[2] = [0.5, 0.25, 5e-324]

    assert "circles 0 and 2 overlap" in reason({"circles": circles})


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        None,
        "0.1",
        "nan",
        [],
        [[[0.1]]],
        {"x": 0.1},
        -0.1,
        -5e-324,
        1.0000000000000002,
        10**4000,
        -(10**4000),
        1e308,
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_not_a_number_from_0_to_1_is_refused_in_every_place(place: int, value: Any) -> None:
    circles = touching()
    circles[5] = [0.5, 0.9, 0.0]
    circles[5][place] = value

    assert "of circle 5 must be a number from 0 to 1" in reason({"circles": circles})


@pytest.mark.parametrize(
    "answer",
    [
        None,
        4.01,
        "circles",
        [],
        touching(),
        {},
        {"circles": None},
        {"circles": {}},
        {"circles": touching()[:25]},
        {"circles": [*touching(), [0.9, 0.9, 0.0]]},
        {"circles": [touching()]},
        {"circles": touching(), "sum_radii": 4.01},
        {"circles": touching(), "invalid": None},
        {"sum_radii": 4.01},
        {"score": 4.01, "measurements": {}},
        {"circles": [[0.5, 0.5]] * 26},
        {"circles": [[0.5, 0.5, 0.0, 0.0]] * 26},
        {"circles": [{"x": 0.5, "y": 0.5, "radius": 0.1}] * 26},
        {"circles": ["abc"] * 26},
        {"circles": [[[0.5, 0.5, 0.0]] * 3] * 26},
    ],
)
def test_an_answer_of_another_shape_is_refused(answer: Any) -> None:
    assert reason(answer)


@pytest.mark.parametrize(
    "exploit",
    [
        # A sum of 4.01: one more circle, laid over the others.
        "[[0.5, 0.5, 0.5]] + [[(i + 0.5) / 26, 0.5, 0.1404] for i in range(25)]",
        # Circles that are only compared with some of the others.
        "[[0.5, 0.5, 0.5]] * 26",
        # Negative radii make room for large ones.
        "[[0.5, 0.5, 0.5]] * 13 + [[0.5, 0.5, -0.5]] * 13",
        # Every comparison with NaN is false.
        "[[0.5, 0.5, 0.1]] * 25 + [[0.5, 0.5, float('nan')]]",
        "[[0.5, 0.5, float('inf')]] * 26",
        # Outside the square there is room enough.
        "[[i + 0.5, 0.5, 0.5] for i in range(26)]",
        # A list that is longer than it says.
        "type('Circles', (list,), {'__len__': lambda self: 26})([[0.5, 0.5, 0.1]] * 40)",
    ],
)
def test_a_recipe_that_cheats_gets_no_score(exploit: str) -> None:
    done = ORIGINAL.trial(f"def pack(request):\n    return {{'circles': {exploit}}}\n")

    # What is not JSON does not even reach the evaluator.
    assert not done.ok or "invalid" in ORIGINAL.score(done.value)


def test_a_recipe_cannot_read_the_evaluator() -> None:
    path = str(SHIPPED / "circle_packing" / "evaluator" / "evaluate.py")

    done = ORIGINAL.trial(f"def pack(request):\n    return open({path!r}).read()\n")

    assert not done.ok


@pytest.mark.soak
def test_the_plain_baseline_can_be_run() -> None:
    command = [sys.executable, str(SHIPPED / "circle_packing" / "plain.py"), "0"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert 2.3 < float(done.stdout.split()[0]) < 2.636
    assert "after 1 starts" in done.stdout
