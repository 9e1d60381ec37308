"""The picture of a run while it runs."""

from __future__ import annotations

import pytest
from rich.console import Console

from ratchet.kernel import Direction, Usage
from ratchet.ledger import Ledger
from ratchet.ledger.research import record_specialist
from ratchet.research.views import draw_live, live_text, read_live
from ratchet.research.views.terminal import sparkline
from tests.research.views.made_up import make_baseline, make_run, submit, try_out


def pictures(ledger: Ledger, run_id: int, *, width: int = 140) -> list[str]:
    """What a terminal and what a pipe is given."""
    with ledger.read() as tx:
        value = read_live(tx, run_id)
    console = Console(width=width, color_system=None)
    with console.capture() as drawn:
        console.print(draw_live(value))
    return [drawn.get(), live_text(value)]


def test_a_run_that_has_not_begun_can_be_watched(ledger: Ledger) -> None:
    for picture in pictures(ledger, make_run(ledger)):
        assert "0 trials" in picture
        assert "no best yet" in picture


@pytest.mark.parametrize("direction", list(Direction))
def test_the_picture_has_the_best_the_specialists_what_is_in_flight_and_the_last_five(
    ledger: Ledger, direction: Direction
) -> None:
    run = make_run(ledger, direction, simulated=True)
    make_baseline(ledger, run, 10.0)
    sign = 1 if direction is Direction.MAX else -1
    try_out(ledger, run, "keep", 10 + sign * 2, "the best idea")
    for at in range(6):
        try_out(ledger, run, "discard", 10.0, f"later idea {at}", specialist="arch")
    submit(ledger, run, "an idea in flight")
    with ledger.write() as tx:
        record_specialist(tx, run, "arch", Usage(cost_microusd=1_500_000), problem="no answer")
    for picture in pictures(ledger, run):
        assert "a run (a task): pending, simulated" in picture
        assert "7 trials" not in picture
        assert "8 trials: 1 keep, 6 discard" in picture
        assert f"best 001: metric {10 + sign * 2}.000000" in picture
        assert "+2.000000 better than the baseline" in picture
        assert "the best idea" in picture
        assert "$1.50" in picture
        assert "no answer" in picture
        assert "an idea in flight" in picture
        assert [f"later idea {at}" in picture for at in range(6)] == [False, True, True, True, True, True]


def test_on_a_narrow_terminal_the_hypothesis_gives_way_and_not_the_number_of_the_trial(
    ledger: Ledger,
) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 2.16667)
    try_out(
        ledger,
        run,
        "keep",
        12.5,
        "an idea that takes far more than one line of a terminal " * 3,
        specialist="generalist",
    )
    picture, _ = pictures(ledger, run, width=80)
    row = next(line for line in picture.splitlines() if line.startswith("001"))
    assert row.split()[:4] == ["001", "generalist", "keep", "12.500000"]
    assert row.endswith("…")


def test_texts_are_not_taken_for_markup(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "discard", 0.5, "[red]weights[/red] [0, 1]")
    for picture in pictures(ledger, run):
        assert "[red]weights[/red] [0, 1]" in picture


def test_scores_become_a_line_of_bars() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([3.0, 3.0]) == "▄▄"
    assert sparkline([]) == "–"
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"


def test_one_trial_is_one(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "discard", 0.5)
    for picture in pictures(ledger, run):
        assert "1 trial: 1 discard" in picture
