"""Where a run stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.kernel import Direction, NotFound, RunStatus, Usage
from ratchet.ledger import Budgets, Ledger, Spender, change_run
from ratchet.ledger.research import add_active, record_specialist
from ratchet.ledger.usage import charge
from ratchet.research.views import live_text, read_live, status
from tests.research.views.made_up import make_baseline, make_run, submit, try_out


def read(ledger: Ledger, run_id: int) -> dict[str, Any]:
    with ledger.read() as tx:
        found = status(tx, run_id)
    json.dumps(found, allow_nan=False)
    return found


def test_a_run_without_a_trial_has_no_baseline_and_no_best(ledger: Ledger) -> None:
    found = read(ledger, make_run(ledger))
    assert (found["trials"], found["by_status"], found["baseline"], found["best"]) == (0, {}, None, None)


def test_a_run_with_only_a_baseline_has_it_as_its_best(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 2.5)
    found = read(ledger, run)
    assert found["baseline"] == {"exp_id": "000", "score": 2.5, "sd": 0.01, "n": 5}
    assert (found["best"]["exp_id"], found["best"]["score"]) == ("000", 2.5)
    assert found["best"]["delta_vs_baseline"] == 0.0
    assert (found["trials"], found["by_status"], found["specialists"]) == (0, {}, [])


def test_trials_are_counted_by_how_they_ended_without_the_baseline(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    for ended, score in (("keep", 1.2), ("discard", 1.1), ("discard", 1.0), ("crash", None)):
        try_out(ledger, run, ended, score)
    try_out(ledger, run, "infra_error")
    open_one = submit(ledger, run)
    found = read(ledger, run)
    assert found["by_status"] == {"keep": 1, "discard": 2, "crash": 1, "infra_error": 1}
    assert found["trials"] == 5  # the infrastructure error does not count, the one in flight does
    assert found["in_flight"] == [f"{open_one:03}"]


@pytest.mark.parametrize(
    ("direction", "score", "delta"), [(Direction.MIN, 0.75, -0.25), (Direction.MAX, 1.5, 0.5)]
)
def test_the_best_says_how_far_it_is_from_the_baseline(
    ledger: Ledger, direction: Direction, score: float, delta: float
) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run, 1.0)
    try_out(ledger, run, "keep", score, "smaller steps", specialist="arch", commit="abc")
    best = read(ledger, run)["best"]
    assert best == {
        "exp_id": "001",
        "score": score,
        "delta_vs_baseline": delta,
        "specialist": "arch",
        "hypothesis": "smaller steps",
        "commit": "abc",
    }


def test_time_since_the_last_keep_is_time_in_which_the_run_ran(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    with ledger.write() as tx:
        add_active(tx, run, 4000)
    try_out(ledger, run, "keep", 2.0)
    with ledger.write() as tx:
        add_active(tx, run, 1500)
    found = read(ledger, run)
    assert (found["active_seconds"], found["seconds_since_keep"]) == (5.5, 1.5)


def test_the_last_keep_of_a_run_that_stopped_is_told_from_then(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    assert read(ledger, run)["last_keep"] == "nothing kept"
    try_out(ledger, run, "keep", 2.0)
    told = []
    for to in (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.CANCELLED):
        with ledger.write() as tx:
            add_active(tx, run, 1000)
            change_run(tx, run, to)
        told.append(read(ledger, run)["last_keep"])
    assert told == ["last keep 1s ago", "last keep 2s before it stopped", "last keep 3s before the end"]


def test_specialists_are_told_by_what_they_brought_and_cost(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    try_out(ledger, run, "keep", 2.0, specialist="opt")
    try_out(ledger, run, "discard", 1.0, specialist="opt")
    try_out(ledger, run, "infra_error", specialist="opt")
    used = Usage(input_tokens=10, output_tokens=5, cost_microusd=250_000, wall_ms=3000)
    with ledger.write() as tx:
        record_specialist(tx, run, "opt", used)
        record_specialist(tx, run, "arch", Usage(), problem="no key")
        charge(tx, Spender(run_id=run), used, Budgets(), engine="test")
    found = read(ledger, run)
    arch, opt = found["specialists"]
    assert (opt["trials"], opt["keeps"], opt["keeps_per_trial"], opt["cost_usd"]) == (2, 1, 0.5, 0.25)
    assert (arch["trials"], arch["failures"], arch["problem"]) == (0, 1, "no key")
    assert arch["keeps_per_trial"] is None
    assert (found["usage"]["tokens"], found["usage"]["cost_usd"], found["usage"]["wall_seconds"]) == (
        15,
        0.25,
        3.0,
    )


def test_a_simulated_run_says_so(ledger: Ledger) -> None:
    assert read(ledger, make_run(ledger, simulated=True))["simulated"] is True
    assert read(ledger, make_run(ledger))["simulated"] is False


def test_the_spread_of_the_baseline_is_found_in_its_samples(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 2.0, {"samples": [1.0, 2.0, 3.0]})
    assert read(ledger, run)["baseline"] == {"exp_id": "000", "score": 2.0, "sd": 1.0, "n": 3}


def test_a_run_that_is_not_research_is_not_found(ledger: Ledger) -> None:
    with ledger.read() as tx, pytest.raises(NotFound):
        status(tx, 77)


@pytest.mark.parametrize(
    ("microusd", "told"), [(0, "$0.00"), (3, "under $0.0001"), (8_100, "$0.0081"), (1_500_000, "$1.50")]
)
def test_a_cost_that_is_not_nothing_is_not_shown_as_nothing(ledger: Ledger, microusd: int, told: str) -> None:
    run = make_run(ledger)
    used = Usage(input_tokens=10, cost_microusd=microusd)
    with ledger.write() as tx:
        record_specialist(tx, run, "opt", used)
        charge(tx, Spender(run_id=run), used, Budgets(), engine="test")
    with ledger.read() as tx:
        assert live_text(read_live(tx, run)).count(told) == 2
