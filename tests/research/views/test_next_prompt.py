"""What happens is in the very next prompt, however much a process remembers of the prompts before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.kernel import Direction
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson
from ratchet.research.views import lineage_view
from tests.ledger.effort import statements_of
from tests.research.views.made_up import end, grow, make_baseline, make_run, submit, try_out


def prompt(ledger: Ledger, run_id: int, specialist: str = "opt") -> str:
    with ledger.read() as tx:
        return lineage_view(tx, run_id, specialist)


@pytest.fixture
def other(ledger: Ledger) -> Iterator[Ledger]:
    """The same ledger in the hands of another process, which remembers nothing of it."""
    with Ledger(ledger.url, ledger.artifacts.root) as opened:
        yield opened


@pytest.fixture
def run(ledger: Ledger) -> int:
    number = make_run(ledger)
    make_baseline(ledger, number)
    try_out(ledger, number, "keep", 1.5, "wider layers", specialist="arch")
    prompt(ledger, number)
    return number


def test_a_lesson_of_another_process_is_there(ledger: Ledger, other: Ledger, run: int) -> None:
    with other.write() as tx:
        add_lesson(tx, run, "arch", "wide layers want a small rate", trial=1)
    assert "- wide layers want a small rate (arch, 001 keep)" in prompt(ledger, run)
    with other.write() as tx:
        add_lesson(tx, run, "reg", "noise does not help")
    assert "(arch, 001 keep)\n- noise does not help (reg, unverified)" in prompt(ledger, run)


def test_a_trial_is_there_while_it_flies_and_when_it_has_ended(
    ledger: Ledger, other: Ledger, run: int
) -> None:
    number = submit(other, run, "deeper layers", parent=1)
    assert "- 002 running – from 001: deeper layers" in prompt(ledger, run)
    end(other, run, number, "crash", reason="out of memory")
    page = prompt(ledger, run)
    assert "- 002 crash – from 001: deeper layers — out of memory" in page
    assert "| 002 | opt | crash | – | – | (above) |" in page
    assert "Trials so far: 2 (1 keep, 1 crash)" in page


def test_a_keep_is_the_best_at_once_and_the_one_before_it_an_ancestor(
    ledger: Ledger, other: Ledger, run: int
) -> None:
    assert "Near misses" not in prompt(ledger, run)
    try_out(other, run, "discard", 1.6, "noisy layers", specialist="reg", reason="by chance")
    assert "- 002 [reg, discard, metric=1.600000, Δ=+0.100000] 0.100000 better than" in prompt(ledger, run)
    try_out(other, run, "keep", 1.61, "deeper layers", parent=1)
    page = prompt(ledger, run)
    assert "- Best: 003 [opt, keep, metric=1.610000, Δ=+0.110000] deeper layers" in page
    assert "- 003 [opt, keep, metric=1.610000, Δ=+0.110000] (above)\n- from 001 [arch, keep" in page
    assert "- 002 [reg, discard, metric=1.600000, Δ=+0.100000] 0.010000 short of the best" in page
    assert "Leaderboard (last 2 kept)" in page


@pytest.mark.parametrize("direction", list(Direction))
def test_whoever_remembers_is_told_what_a_stranger_is_told(
    ledger: Ledger, other: Ledger, direction: Direction
) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run)
    grow(ledger, run, 80)
    statuses = ("discard", "keep", "crash", "infra_error", "discard", "disqualified", "keep")
    for at, status in enumerate(statuses):
        number = submit(other, run, f"idea {at // 2}", specialist="opt", parent=80, expected_delta="+0.1")
        prompt(ledger, run)
        end(other, run, number, status, 1.1 - at / 1000 if status != "crash" else None, reason="so it is")
        with Ledger(ledger.url, ledger.artifacts.root) as stranger:
            assert prompt(ledger, run) == prompt(stranger, run)
            assert prompt(ledger, run, "arch") == prompt(stranger, run, "arch")


def test_two_runs_with_the_same_numbers_are_not_taken_for_each_other(ledger: Ledger, run: int) -> None:
    second = make_run(ledger)
    make_baseline(ledger, second)
    try_out(ledger, second, "keep", 1.5, "narrower layers", specialist="arch")
    assert "wider layers" not in prompt(ledger, second)
    assert "narrower layers" not in prompt(ledger, run)


def test_a_prompt_is_one_statement_and_another_one_for_what_is_new(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx, statements_of(tx.connection) as statements:
        lineage_view(tx, run, "opt")
    standing, *rest = statements
    assert "FROM research" in standing[0]
    assert len(rest) == 1
    submit(ledger, run, "deeper layers")
    with ledger.read() as tx, statements_of(tx.connection) as statements:
        lineage_view(tx, run, "opt")
    assert len(statements) == 3
