"""Runs on one line each, side by side, and as one tree."""

from __future__ import annotations

import time

from ratchet.kernel import Direction
from ratchet.ledger import Ledger
from ratchet.ledger.runs import list_runs
from ratchet.research.views import compare, overview, pairs, read_live, whole_tree
from ratchet.research.views.plot import plotted
from tests.research.views.made_up import end, grow, make_baseline, make_run, submit, try_out


def test_a_line_tells_what_a_run_has_gained_and_kept(ledger: Ledger) -> None:
    fresh = make_run(ledger)
    run = make_run(ledger, Direction.MIN)
    make_baseline(ledger, run, 10.0)
    try_out(ledger, run, "keep", 9.0)
    try_out(ledger, run, "crash")
    with ledger.read() as tx:
        first, second = overview(tx, list_runs(tx, kind="research"))
    assert (first.run.id, second.run.id) == (run, fresh)
    told = first.to_dict()
    assert (told["best"], told["best_score"], told["baseline_score"], told["gained"]) == (
        "001",
        9.0,
        10.0,
        1.0,
    )
    assert (told["trials"], told["keeps"]) == (2, 1)
    assert first.kept == ((0, 10.0), (1, 9.0))
    assert (second.to_dict()["best"], second.kept) == (None, ())


def test_runs_are_compared_after_the_same_number_of_trials(ledger: Ledger) -> None:
    short, long = make_run(ledger), make_run(ledger)
    for run in (short, long):
        make_baseline(ledger, run)
    try_out(ledger, short, "keep", 1.5)
    grow(ledger, long, 48)
    with ledger.read() as tx:
        found = compare(tx, [short, long])
    assert found.budgets == (10, 20, 48)
    assert found.alike
    assert [row.after[0] for row in found.rows] == [None, 1 + 8 / 1e6]
    assert found.rows[1].after[-1] == 1 + 48 / 1e6


def test_the_best_is_what_was_kept_last_and_not_what_was_handed_in_last(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 1.0)
    slow, quick = submit(ledger, run), submit(ledger, run)
    end(ledger, run, quick, "keep", 1.5)
    # Ends are told apart by the millisecond.
    time.sleep(0.002)
    end(ledger, run, slow, "keep", 2.0)
    with ledger.read() as tx:
        [line] = overview(tx, list_runs(tx, kind="research"))
        assert line.kept == ((0, 1.0), (slow, 2.0))
        assert compare(tx, [run]).rows[0].after[-1] == 2.0
        assert read_live(tx, run).kept == (1.0, 2.0)
        assert plotted(tx, run, quick + 1, 100).bests == [(0, 1.0), (slow, 2.0)]


def test_scores_that_differ_are_not_alike(ledger: Ledger) -> None:
    runs = [make_run(ledger, direction) for direction in Direction]
    with ledger.read() as tx:
        assert not compare(tx, runs).alike


def test_the_whole_tree_comes_in_pages_that_miss_nothing(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    grow(ledger, run, 40)
    submit(ledger, run, parent=40)
    numbers: list[int] = []
    after = -1
    with ledger.read() as tx:
        while after is not None:
            page = whole_tree(tx, run, after=after, limit=16)
            numbers += page["number"]
            after = page["next"]
    assert numbers == list(range(42))
    assert (page["parent"][-1], page["statuses"][page["status"][-1]], page["score"][-1]) == (
        40,
        "running",
        None,
    )
    assert page["best"] == 40


def test_rounds_are_paired_by_their_seed() -> None:
    def taken(side: str, seed: int, score: float | None, phase: str = "round") -> dict[str, object]:
        return {"side": side, "phase": phase, "seed": seed, "score": score}

    certificate = {
        "direction": "min",
        "measurements": [
            taken("challenger", 7, 1.0, "first"),
            taken("challenger", 8, 2.0),
            taken("champion", 8, 5.0),
            taken("champion", 9, None),
            taken("challenger", 9, 1.0),
            "something else",
        ],
    }
    assert [(each["seed"], each["gain"]) for each in pairs(certificate)] == [(8, 3.0), (9, None)]
    assert pairs(None) == pairs({}) == []
