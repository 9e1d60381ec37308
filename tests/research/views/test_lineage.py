"""What a specialist's prompt says of the run."""

from __future__ import annotations

import re

import pytest

from ratchet.kernel import Direction, Misuse
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, get_standing
from ratchet.research.views import lineage_off_view, lineage_view
from tests.research.views.made_up import grow, make_baseline, make_run, submit, try_out

SECTIONS = (
    "Current best",
    "Key insights",
    "Your last trials",
    "Near misses",
    "Lineage of the best",
    "Leaderboard",
    "Recent activity",
)


def view(ledger: Ledger, run_id: int, specialist: str = "opt", budget: int = 12_000) -> str:
    with ledger.read() as tx:
        return lineage_view(tx, run_id, specialist, budget_chars=budget)


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {title}.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return found[0] if found else ""


@pytest.fixture
def busy(ledger: Ledger) -> int:
    """A run with a long history, many lessons and many children of the best."""
    run = make_run(ledger)
    make_baseline(ledger, run)
    grow(ledger, run, 400)
    for at in range(30):
        try_out(ledger, run, "discard", 1.0, f"child {at} of the best: {'word ' * 60}", parent=400)
    with ledger.write() as tx:
        for at in range(60):
            add_lesson(tx, run, "arch", f"lesson {at}: {'do this and not that ' * 15}")
    return run


@pytest.mark.parametrize("direction", list(Direction))
def test_the_first_prompt_names_the_goal_and_the_baseline(ledger: Ledger, direction: Direction) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run, 2.5)
    page = view(ledger, run)
    assert ("higher" if direction is Direction.MAX else "lower") + " is better" in page
    assert "000 [baseline, baseline, metric=2.500000]" in page
    assert "noise (sd of 5) 0.010000" in page


def test_a_run_without_anything_has_a_view_all_the_same(ledger: Ledger) -> None:
    assert "There is no best yet." in view(ledger, make_run(ledger))


def test_a_view_keeps_within_its_budget_and_makes_use_of_it(ledger: Ledger, busy: int) -> None:
    for budget in (3000, 6000, 12_000, 18_000):
        assert budget * 0.6 < len(view(ledger, busy, budget=budget)) <= budget
    for budget in range(2000, 2600, 50):
        assert len(view(ledger, busy, budget=budget)) <= budget


def test_no_section_is_pushed_out_by_a_long_one(ledger: Ledger, busy: int) -> None:
    page = view(ledger, busy)
    assert [title for title in SECTIONS if not section(page, title)] == []
    assert "lesson 59" in section(page, "Key insights")
    assert re.search(r"^… \d+ more$", section(page, "Key insights"), re.MULTILINE)


def test_a_section_takes_what_others_do_not_need(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    with ledger.write() as tx:
        for at in range(25):
            add_lesson(tx, run, "arch", f"lesson {at}: {'do this and not that ' * 15}")
    page = view(ledger, run, budget=12_000)
    assert len(section(page, "Key insights")) > 0.5 * 12_000


def test_the_words_of_a_trial_are_given_once(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0, "wider layers")
    try_out(ledger, run, "discard", 1.99, "deeper layers", parent=1)
    page = view(ledger, run)
    assert page.count("wider layers") == 1
    assert page.count("deeper layers") == 1
    assert "| 002 | opt | discard | 1.990000 | -0.010000 | (above) |" in section(page, "Recent activity")


def test_own_trials_say_why_they_failed_and_where(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    log = "a long log line\n" * 200
    tail = "ValueError: shapes differ (recipe.py:31 in forward)"
    try_out(ledger, run, "crash", None, "bigger batch", reason=log + tail)
    own = section(view(ledger, run), "Your last trials")
    assert "- 001 crash – from 000: bigger batch — a long log line" in own
    assert tail in own


def test_trials_of_others_are_not_told_as_own_and_those_in_flight_are_seen(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    submit(ledger, run, "being tried", specialist="arch")
    page = view(ledger, run, "opt")
    assert section(page, "Your last trials") == ""
    assert "001 [arch, running, metric=–] being tried" in page
    assert "| 001 | arch | running |" in section(page, "Recent activity")


def test_what_could_not_be_measured_is_not_shown_as_tried(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "infra_error", 5.0, "the disk was full")
    try_out(ledger, run, "harness_abort", 5.0, "taken out")
    page = view(ledger, run)
    assert "disk was full" not in page
    assert "taken out" not in page


@pytest.mark.parametrize(
    ("sd", "moved", "told"), [(0.05, 0.04, True), (0.05, 0.06, False), (0.0, 0.01, False)]
)
def test_a_specialist_that_moves_less_than_the_noise_of_the_run_is_told(
    ledger: Ledger, sd: float, moved: float, told: bool
) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 1.0, {"score": 1.0, "sd": sd, "n": 5})
    for at in range(5):
        try_out(ledger, run, "discard", 1.0 - moved, f"idea {at}")
    assert ("used up" in section(view(ledger, run), "Take note")) is told


def test_four_small_trials_or_a_keep_among_five_are_no_saturation(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 1.005, "kept")
    for at in range(4):
        try_out(ledger, run, "discard", 1.004, f"idea {at}")
    assert "used up" not in view(ledger, run)


def test_five_trials_without_a_score_ask_for_a_smaller_change(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    for at in range(5):
        try_out(ledger, run, "crash", None, f"idea {at}")
    assert "None of your last 5 trials has a valid score" in section(view(ledger, run), "Take note")


def test_an_idea_that_was_submitted_again_is_pointed_out(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "crash", None, "Use lr=0.1, please.", specialist="arch")
    try_out(ledger, run, "discard", 0.9, "use LR = 0.1 please", specialist="opt")
    try_out(ledger, run, "discard", 0.9, "use lr=0.2 please", specialist="opt")
    note = section(view(ledger, run), "Take note")
    assert "Submitted 2 times (001 crash, 002 discard): Use lr=0.1, please." in note
    assert "003" not in note


def test_a_specialist_is_told_how_its_expectations_came_out(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    for at in range(3):
        try_out(ledger, run, "discard", 0.5, f"idea {at}", expected_delta="+0.2")
    note = section(view(ledger, run), "Take note")
    assert "you expected +0.200000 on average and measured -0.500000; 0 moved the way you expected" in note


def test_a_view_without_room_for_anything_is_refused(ledger: Ledger) -> None:
    run = make_run(ledger)
    with ledger.read() as tx, pytest.raises(Misuse, match="100 characters"):
        lineage_view(tx, run, "opt", budget_chars=100)


def test_lineage_turned_off_says_the_best_and_its_score_only(ledger: Ledger) -> None:
    run = make_run(ledger)
    with ledger.read() as tx:
        assert lineage_off_view(get_standing(tx, run)) == "There is no best yet."
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 1.25, "a secret idea", specialist="arch")
    with ledger.read() as tx:
        assert lineage_off_view(get_standing(tx, run)) == "Current best: 001, metric 1.250000."
