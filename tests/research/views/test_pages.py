"""Leaderboard, tree, knowledge, activity, near misses, yield, cost and calibration."""

from __future__ import annotations

import pytest

from ratchet.kernel import Direction, NotFound, Usage
from ratchet.ledger import Budgets, Ledger, Spender
from ratchet.ledger.research import add_lesson, record_specialist
from ratchet.ledger.usage import charge
from ratchet.research.views import (
    calibration,
    cost,
    insights,
    knowledge,
    leaderboard,
    near_misses,
    recent_activity,
    tree,
    yields,
)
from ratchet.research.views.lineage import lineage_view
from ratchet.research.views.specialists import expected_delta
from tests.research.views.made_up import make_baseline, make_run, submit, try_out

BETTER = {Direction.MIN: -1, Direction.MAX: 1}


@pytest.fixture(params=list(Direction))
def direction(request: pytest.FixtureRequest) -> Direction:
    return Direction(request.param)


def numbers(rows: object) -> list[int]:
    return [each.number for each in rows]  # type: ignore[attr-defined]


def test_the_leaderboard_has_the_last_twenty_that_were_kept_and_not_the_baseline(
    ledger: Ledger, direction: Direction
) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run, 100.0)
    for step in range(1, 24):
        try_out(ledger, run, "keep", 100 + BETTER[direction] * step)
        try_out(ledger, run, "discard", 100.0)
    with ledger.read() as tx:
        found = leaderboard(tx, run)
    assert numbers(found.rows) == list(range(45, 5, -2))
    assert found.to_markdown().splitlines()[2].startswith(f"| 045 | {100 + BETTER[direction] * 23}.000000 |")


def test_a_leaderboard_shows_what_else_was_measured(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0, measurements={"means": {"accuracy": 0.96}})
    with ledger.read() as tx:
        found = leaderboard(tx, run, columns=["accuracy", "unheard of"])
    assert found.to_dict()[0]["measurements"] == {"accuracy": 0.96, "unheard of": None}
    assert "| 001 | 2.000000 | 0.960000 | – | +1.000000 |" in found.to_markdown()


def test_a_run_in_which_nothing_was_kept_says_so(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "discard", 0.5)
    with ledger.read() as tx:
        assert leaderboard(tx, run).to_markdown() == "Nothing was kept yet."
        assert tree(tx, run).focus == 0


def test_the_tree_of_the_best_goes_from_the_root_to_its_children(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0, "first")
    try_out(ledger, run, "discard", 1.0, "a side branch", parent=0)
    try_out(ledger, run, "keep", 3.0, "second", parent=1)
    try_out(ledger, run, "crash", None, "a child", parent=3)
    with ledger.read() as tx:
        found, wide = tree(tx, run), tree(tx, run, sideways=2)
    assert [(node.trial.number, node.level, node.on_line) for node in found.nodes] == [
        (0, 0, True),
        (1, 1, True),
        (3, 2, True),
        (4, 3, False),
    ]
    assert [node.trial.number for node in wide.nodes] == [0, 2, 1, 3, 4]
    assert found.to_markdown().splitlines()[3] == (
        "      └─ 003 [opt, keep, metric=3.000000, Δ=+1.000000] second   ← BEST"
    )


def test_a_tree_page_can_stand_around_any_trial_and_says_what_it_leaves_out(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    for parent in range(4):
        try_out(ledger, run, "discard", 1.0, parent=parent)
    for _ in range(3):
        try_out(ledger, run, "discard", 1.0, parent=3)
    with ledger.read() as tx:
        found = tree(tx, run, 3, upwards=2, downwards=2)
        with pytest.raises(NotFound):
            tree(tx, run, 99)
    assert [node.trial.number for node in found.nodes] == [2, 3, 6, 7]
    assert (found.earlier, found.more) == (2, True)
    assert [node.trial.number for node in found.nodes if node.trial.parent == found.focus] == [6, 7]
    assert "… 2 earlier" in found.to_markdown()
    assert "… and older ones" in found.to_markdown()


def test_recent_activity_hides_what_tells_nothing_about_an_idea(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    kept = try_out(ledger, run, "keep", 2.0, specialist="arch")
    for ended in ("infra_error", "harness_abort"):
        try_out(ledger, run, ended)
    crashed = try_out(ledger, run, "crash")
    running = submit(ledger, run)
    with ledger.read() as tx:
        assert numbers(recent_activity(tx, run).rows) == [running, crashed, kept, 0]
        assert numbers(recent_activity(tx, run, limit=2).rows) == [running, crashed]
        assert numbers(recent_activity(tx, run, specialist="arch").rows) == [kept]


def test_near_misses_are_as_good_as_the_best_or_nearly_and_say_why_they_were_not_kept(
    ledger: Ledger, direction: Direction
) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run, 10.0)  # with a noise of 0.01
    sign = BETTER[direction]
    try_out(ledger, run, "keep", 10 + sign)
    better = try_out(ledger, run, "size_blocked", 10 + sign * 1.5, reason="17 MB of 16 MB")
    near = try_out(ledger, run, "discard", 10 + sign * 0.985)
    try_out(ledger, run, "discard", 10 + sign * 0.9)
    try_out(ledger, run, "infra_error", 10 + sign * 3)
    with ledger.read() as tx:
        found = near_misses(tx, run)
    assert numbers(found.rows) == [better, near]
    assert [round(each["gain_vs_best"], 3) for each in found.to_dict()] == [0.5, -0.015]
    assert [each["why"] for each in found.to_dict()] == ["17 MB of 16 MB", "not better than the best of then"]


def test_where_there_is_no_noise_a_hundredth_of_the_gain_is_near(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 0.0, {"score": 0.0})
    try_out(ledger, run, "keep", 1.0)
    near = try_out(ledger, run, "discard", 0.991)
    try_out(ledger, run, "discard", 0.98)
    with ledger.read() as tx:
        assert numbers(near_misses(tx, run).rows) == [near]


def test_the_knowledge_page_has_lessons_lineage_and_activity(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0, "wider layers")
    with ledger.write() as tx:
        add_lesson(tx, run, "opt", "Warm up longer", trial=1)
        add_lesson(tx, run, "arch", "warm up  LONGER")
    with ledger.read() as tx:
        page = knowledge(tx, run).to_markdown()
        lessons = insights(tx, run)
    assert [each.specialist for each in lessons.rows] == ["arch"]  # one idea is written down once, the newest
    assert "- warm up LONGER (arch, unverified)" in page
    assert (
        page.index("## Key Insights")
        < page.index("## Research Tree")
        < page.index("## Recent Activity (last 2)")
    )
    assert "wider layers" in page


def test_cost_is_told_in_all_and_per_trial_and_keep(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0)
    try_out(ledger, run, "discard", 1.0)
    used = Usage(input_tokens=1000, cost_microusd=3_000_000)
    with ledger.write() as tx:
        record_specialist(tx, run, "opt", used)
        charge(tx, Spender(run_id=run), used, Budgets(), engine="test")
    with ledger.read() as tx:
        found = cost(tx, run)
        table = yields(tx, run).to_markdown()
    told = found.to_dict()
    assert (told["cost_usd"], told["cost_usd_per_trial"], told["cost_usd_per_keep"]) == (3.0, 1.5, 3.0)
    assert "| all | 1,000 | $3.00 | $1.50 | $3.00 | 0s |" in found.to_markdown()
    assert "| opt | 1 | 2 | 1 | 0.500 | 1,000 | $3.00 | 0s |" in table


def test_expectations_are_held_against_what_was_measured(ledger: Ledger) -> None:
    run = make_run(ledger, Direction.MIN)
    make_baseline(ledger, run, 10.0)
    try_out(ledger, run, "keep", 9.0, expected_delta="-0.6")
    try_out(ledger, run, "discard", 9.5, expected_delta="about –0.4 s")
    try_out(ledger, run, "discard", 9.5, expected_delta="who knows")
    try_out(ledger, run, "crash", None, expected_delta="-5")
    with ledger.read() as tx:
        [row] = calibration(tx, run).rows
        assert calibration(tx, run).of("nobody") is None
    assert (row.trials, row.expected, row.actual, row.right_way) == (2, -0.5, -0.25, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.6", -0.6),
        ("+1e-3", 0.001),
        ("\u22120.25", -0.25),
        ("– 0.25", -0.25),
        ("~ -0.2 to -0.4 bpb", -0.3),
        ("0.1–0.3", 0.2),
        ("5%", 0.1),
        ("1e999", None),
        ("", None),
        ("better", None),
        ("-.5", -0.5),
    ],
)
def test_an_expectation_is_read_out_of_free_text(text: str, expected: float | None) -> None:
    assert expected_delta(text, 2.0) == (None if expected is None else pytest.approx(expected))


def test_a_share_of_nothing_known_is_no_expectation() -> None:
    assert expected_delta("5%") is None


def test_a_lesson_says_what_it_stands_on_and_that_of_a_disqualified_trial_is_no_insight(
    ledger: Ledger,
) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    good = try_out(ledger, run, "discard", 0.5)
    bad = try_out(ledger, run, "disqualified")
    with ledger.write() as tx:
        add_lesson(tx, run, "opt", "warm up longer", trial=good)
        add_lesson(tx, run, "arch", "the evaluator reads only the first line", trial=bad)
        add_lesson(tx, run, "arch", "Warm up longer", trial=bad)
        add_lesson(tx, run, "reg", "noise may help")
    with ledger.read() as tx:
        page = knowledge(tx, run).to_markdown()
        prompt = lineage_view(tx, run, "opt")
        shown = insights(tx, run).answer()
    lines = ["- warm up longer (opt, 001 discard)", "- noise may help (reg, unverified)"]
    assert "\n".join(lines) in page
    assert "\n".join(lines) in prompt
    assert "only the first line" not in page + prompt
    assert [(each.text, each.status, each.verified) for each in shown] == [
        ("noise may help", None, False),
        ("warm up longer", "discard", True),
        ("the evaluator reads only the first line", "disqualified", False),
    ]
