from __future__ import annotations

import pytest

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Outcome, Usage
from ratchet.ledger import Budgets, Ledger, Spender
from ratchet.ledger.runs import close_attempt, create_run, create_steps, get_step, open_attempt
from ratchet.ledger.usage import charge, hold

BUDGETS = Budgets(limits={"attempt": Limits(tokens=400), "run": Limits(tokens=1000)})


def begin(ledger: Ledger, run_id: int, name: str, budgets: Budgets = BUDGETS) -> tuple[int, Limits]:
    with ledger.write() as tx:
        [step_id] = create_steps(tx, run_id, [(name, {})])
        attempt_id = open_attempt(tx, get_step(tx, step_id))
        return attempt_id, hold(tx, Spender(attempt_id, run_id), budgets)


def make_run(ledger: Ledger) -> int:
    with ledger.write() as tx:
        return create_run(tx, "research", "r")


def test_attempts_side_by_side_are_never_promised_more_than_the_run_has(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    promised = [begin(ledger, run_id, name)[1].tokens for name in "abc"]
    assert promised == [400, 400, 200]
    with pytest.raises(BudgetExceeded, match="tokens budget of run 1 is promised to others: 1000 of 1000"):
        begin(ledger, run_id, "d")


def test_what_an_attempt_did_not_use_is_free_again_when_it_ends(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    attempts = [begin(ledger, run_id, name)[0] for name in "abc"]
    with ledger.write() as tx:
        charge(tx, Spender(attempts[0], run_id), Usage(input_tokens=150), BUDGETS, engine="x")
        close_attempt(tx, attempts[0], Outcome.FAILED, "no better")
    assert begin(ledger, run_id, "d")[1].tokens == 250


def test_what_an_attempt_has_used_is_not_counted_twice(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    first, _ = begin(ledger, run_id, "a")
    with ledger.write() as tx:
        charge(tx, Spender(first, run_id), Usage(output_tokens=300), BUDGETS, engine="x")
    assert begin(ledger, run_id, "b")[1].tokens == 400
    assert begin(ledger, run_id, "c")[1].tokens == 200


def test_the_hold_of_an_attempt_whose_process_died_is_given_back_with_it(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    begin(ledger, run_id, "a")
    with ledger.write() as tx:
        step = get_step(tx, 1)
        again = open_attempt(tx, step)
        assert hold(tx, Spender(again, run_id), BUDGETS).tokens == 400
    assert begin(ledger, run_id, "b")[1].tokens == 400


def test_an_attempt_without_a_limit_of_its_own_shares_what_is_left(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    only_run = Budgets(limits={"run": Limits(tokens=1000)})
    assert [begin(ledger, run_id, name, only_run)[1].tokens for name in "ab"] == [1000, 1000]


@pytest.mark.parametrize("policy", [BudgetPolicy.WARN, BudgetPolicy.OFF])
def test_a_lax_budget_refuses_nobody_and_ends_no_session(ledger: Ledger, policy: BudgetPolicy) -> None:
    run_id = make_run(ledger)
    lax = Budgets(policy, BUDGETS.limits)
    assert [begin(ledger, run_id, name, lax)[1] for name in "abcd"] == [Limits()] * 4


ONLY_RUN = Budgets(limits={"run": Limits(tokens=1000, cost_usd=1.0)})


def begin_one_of(ledger: Ledger, run_id: int, name: str, count: int) -> tuple[int, Limits]:
    with ledger.write() as tx:
        [step_id] = create_steps(tx, run_id, [(name, {})])
        attempt_id = open_attempt(tx, get_step(tx, step_id))
        return attempt_id, hold(tx, Spender(attempt_id, run_id), ONLY_RUN, side_by_side=count)


def end(ledger: Ledger, run_id: int, attempt_id: int, tokens: int) -> None:
    with ledger.write() as tx:
        charge(tx, Spender(attempt_id, run_id), Usage(input_tokens=tokens), ONLY_RUN, engine="x")
        close_attempt(tx, attempt_id, Outcome.FAILED, "no better")


def test_attempts_known_to_run_side_by_side_are_each_promised_their_share(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    promised = [begin_one_of(ledger, run_id, name, 4)[1] for name in "abcd"]
    assert promised == [Limits(tokens=250, cost_usd=0.25)] * 4


def test_a_share_that_was_not_used_goes_to_the_next(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    first, _ = begin_one_of(ledger, run_id, "a", 2)
    begin_one_of(ledger, run_id, "b", 2)
    end(ledger, run_id, first, tokens=100)
    assert begin_one_of(ledger, run_id, "c", 2)[1].tokens == 400


def test_a_budget_that_is_promised_to_others_is_not_the_same_as_one_that_is_used_up(ledger: Ledger) -> None:
    run_id = make_run(ledger)
    first, _ = begin_one_of(ledger, run_id, "a", 2)
    second, _ = begin_one_of(ledger, run_id, "b", 2)
    end(ledger, run_id, first, tokens=600)
    with pytest.raises(BudgetExceeded, match="is promised to others") as refused:
        begin_one_of(ledger, run_id, "c", 2)
    assert refused.value.held
    end(ledger, run_id, second, tokens=400)
    with pytest.raises(BudgetExceeded, match="is used up: 1000 of 1000") as used_up:
        begin_one_of(ledger, run_id, "d", 2)
    assert not used_up.value.held


def test_a_budget_of_money_is_told_as_money() -> None:
    assert str(BudgetExceeded("run", 1, "cost_usd", 1.2, 1.0)) == "the budget of $1.00 is used up ($1.20)"
