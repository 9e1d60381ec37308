"""Every view does the same work however many trials there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger import trial_pages as rows
from ratchet.ledger.research import get_standing
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial
from ratchet.research.views import (
    calibration,
    cost,
    draw_live,
    insights,
    knowledge,
    leaderboard,
    lineage_off_view,
    lineage_view,
    near_misses,
    read_live,
    recent_activity,
    report,
    status,
    tree,
    yields,
)
from tests.ledger.effort import analyze, effort, plan_of, statements_of
from tests.research.views.made_up import grow, make_baseline, make_run, multiply

TRIALS = 2800
# The other run of the ledger is as long, and has nothing to do with this one.
RUN = 1

VIEWS: dict[str, Callable[[Transaction], object]] = {
    "status": lambda tx: status(tx, RUN),
    "leaderboard": lambda tx: leaderboard(tx, RUN),
    "tree": lambda tx: tree(tx, RUN, sideways=3),
    "tree of the baseline": lambda tx: tree(tx, RUN, 0),
    "knowledge": lambda tx: knowledge(tx, RUN),
    "recent activity": lambda tx: recent_activity(tx, RUN),
    "activity of one": lambda tx: recent_activity(tx, RUN, specialist="arch"),
    "near misses": lambda tx: near_misses(tx, RUN),
    "yields": lambda tx: yields(tx, RUN),
    "cost": lambda tx: cost(tx, RUN),
    "calibration": lambda tx: calibration(tx, RUN),
    "insights": lambda tx: insights(tx, RUN),
    "prompt": lambda tx: lineage_view(tx, RUN, "opt"),
    "prompt without lineage": lambda tx: lineage_off_view(get_standing(tx, RUN)),
    "live": lambda tx: draw_live(read_live(tx, RUN)),
    "report": lambda tx: report(tx, RUN),
}
QUERIES: dict[str, Callable[[Transaction], object]] = {
    "ix_trials_kept": lambda tx: rows.kept_trials(tx, RUN),
    "ix_trials_missed": lambda tx: rows.near_misses(tx, RUN, Direction.MAX),
    "ix_trials_missed, least": lambda tx: rows.near_misses(tx, RUN, Direction.MIN),
    "ix_trials_in_flight": lambda tx: rows.in_flight(tx, RUN),
    "ix_trials_parent": lambda tx: rows.children(tx, RUN, 0),
    "ix_trials_specialist": lambda tx: rows.tried_trials(tx, RUN, specialist="opt"),
}


@pytest.fixture
def long(ledger: Ledger) -> Ledger:
    for direction in (Direction.MAX, Direction.MIN):
        run = make_run(ledger, direction)
        make_baseline(ledger, run)
        grow(ledger, run, TRIALS)
    analyze(ledger)
    return ledger


@contextmanager
def nothing_remembered(ledger: Ledger) -> Iterator[Transaction]:
    """A look at the ledger by somebody who has not read any of it before."""
    with Ledger(ledger.url, ledger.artifacts.root) as stranger, stranger.read() as tx:
        yield tx


def work_of(ledger: Ledger) -> dict[str, int]:
    found = {}
    for name, view in VIEWS.items():
        with nothing_remembered(ledger) as tx:
            found[name] = effort(tx, view)
    return found


@pytest.mark.soak
def test_every_view_does_the_same_work_on_ten_times_the_trials(long: Ledger) -> None:
    small = work_of(long)
    multiply(long, RUN, 10)
    analyze(long)
    large = work_of(long)
    grown = {name: (small[name], large[name]) for name in VIEWS if large[name] > 1.5 * small[name] + 50}
    assert grown == {}


@pytest.mark.parametrize("query", QUERIES)
def test_a_page_of_trials_is_read_from_the_index_made_for_it(long: Ledger, query: str) -> None:
    read = QUERIES[query]
    with nothing_remembered(long) as tx:
        if tx.on_postgresql:
            # A handful of rows it may as well sort; the question is whether the index has them in order.
            tx.connection.exec_driver_sql("SET LOCAL enable_sort = off")
        with statements_of(tx.connection) as statements:
            read(tx)
        plan, *looked_up = [plan_of(tx, *each) for each in statements]
    # Some pages name trials, and those that are not known are then looked up by their numbers.
    assert len(looked_up) <= 1
    for lookup in looked_up:
        assert not re.search(r"SCAN trials\b|Seq Scan on trials\b", "\n".join(lookup))
    assert query.partition(",")[0] in "\n".join(plan)
    assert not [step for step in plan if "TEMP B-TREE" in step or re.search(r"\bSort\b", step)]


def test_trials_that_have_ended_are_read_once_and_those_in_flight_each_time(long: Ledger) -> None:
    with long.read() as tx:
        first = rows.tried_trials(tx, RUN, limit=30)
        with statements_of(tx.connection) as statements:
            again = rows.tried_trials(tx, RUN, limit=30)
        assert again == first
        flying = [trial.number for trial in first if trial.status is None]
        assert len(statements) == 1 + bool(flying)
    with long.write() as tx:
        number = open_trial(
            tx, RUN, Submission(specialist="opt", hypothesis="later", commit="c" * 40, parent=0)
        ).number
    with long.read() as tx:
        assert rows.tried_trials(tx, RUN, limit=30)[0].status is None
    with long.write() as tx:
        end_trial(tx, RUN, number, Ending(status=TrialStatus.DISCARD, reason="worse", score=0.5))
    with long.read() as tx:
        newest = rows.tried_trials(tx, RUN, limit=30)[0]
        assert (newest.number, newest.status, newest.score) == (number, TrialStatus.DISCARD, 0.5)
        assert rows.tried_trials(tx, RUN, limit=30)[0] is newest


@pytest.mark.soak
def test_no_view_scans_the_trials(long: Ledger) -> None:
    scans = {}
    for name, view in VIEWS.items():
        with nothing_remembered(long) as tx:
            with statements_of(tx.connection) as statements:
                view(tx)
            steps = [step for each in statements for step in plan_of(tx, *each)]
        found = [step for step in steps if re.search(r"SCAN trials\b|Seq Scan on trials\b|AUTOMATIC", step)]
        if found:
            scans[name] = found
    assert scans == {}
