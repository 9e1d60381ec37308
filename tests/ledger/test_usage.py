import logging
import threading
import time
from dataclasses import asdict

import pytest
import sqlalchemy as sa

from ratchet.kernel import BudgetExceeded, BudgetPolicy, Limits, Usage
from ratchet.ledger import Budgets, EventFilter, Ledger, Spender
from ratchet.ledger import events as log
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.tables import usage as usage_table
from ratchet.ledger.usage import charge, check, set_budget, total
from tests.ledger.actors import acting, charge_often, place_of

SMALL = Usage(input_tokens=60, cached_tokens=10, output_tokens=0, cost_microusd=3, wall_ms=5, trials=1)


@pytest.fixture
def spender(ledger: Ledger) -> Spender:
    with ledger.write() as tx:
        project = add_project(tx, "work")
        run = create_run(tx, "demo", "one", project_id=project)
        [step] = create_steps(tx, run, [("a", {})])
        return Spender(open_attempt(tx, get_step(tx, step)), run, project)


def spend(ledger: Ledger, spender: Spender, used: Usage, budgets: Budgets | None = None) -> None:
    with ledger.write() as tx:
        charge(tx, spender, used, budgets or Budgets(), engine="test", model="m")


def left(ledger: Ledger, spender: Spender, budgets: Budgets) -> Limits:
    with ledger.read() as tx:
        return check(tx, spender, budgets)


def exceeded(ledger: Ledger) -> list[object]:
    with ledger.read() as tx:
        return [event.data for event in log.since(tx.connection, where=EventFilter(type="budget.exceeded"))]


def test_usage_adds_up_over_attempt_run_and_project(ledger: Ledger, spender: Spender) -> None:
    spend(ledger, spender, SMALL)
    spend(ledger, Spender(run_id=spender.run_id, project_id=spender.project_id), SMALL)
    spend(ledger, Spender(project_id=spender.project_id), SMALL)
    with ledger.read() as tx:
        sums = [total(tx, scope, number).tokens for scope, number in spender.scopes()]
        assert total(tx, "run", 999) == Usage()
    assert sums == [60, 120, 180]


def test_a_strict_budget_refuses_what_comes_after_it_is_used_up(ledger: Ledger, spender: Spender) -> None:
    budgets = Budgets(BudgetPolicy.STRICT, {"run": Limits(tokens=100), "project": Limits(tokens=1000)})
    assert left(ledger, spender, budgets) == Limits(tokens=100)
    spend(ledger, spender, SMALL, budgets)
    assert left(ledger, spender, budgets) == Limits(tokens=40)
    spend(ledger, spender, SMALL, budgets)
    with pytest.raises(BudgetExceeded) as raised:
        left(ledger, spender, budgets)
    assert str(raised.value) == f"the tokens budget of run {spender.run_id} is used up: 120 of 100"
    assert raised.value.hint == "raise budgets.run.tokens, or set budgets.policy to warn"
    with ledger.read() as tx:
        assert total(tx, "run", spender.run_id).tokens == 120


@pytest.mark.parametrize(
    ("scope", "measure", "limit"),
    [
        ("attempt", "tokens", Limits(tokens=60)),
        ("run", "cost_usd", Limits(cost_usd=0.000003)),
        ("project", "wall_seconds", Limits(wall_seconds=0.005)),
        ("run", "trials", Limits(trials=1)),
    ],
)
def test_each_scope_and_measure_can_be_the_one_that_ends_it(ledger, spender, scope, measure, limit) -> None:
    budgets = Budgets(BudgetPolicy.STRICT, {scope: limit})
    spend(ledger, spender, SMALL, budgets)
    with pytest.raises(BudgetExceeded) as raised:
        left(ledger, spender, budgets)
    assert (raised.value.scope, raised.value.measure) == (scope, measure)


def test_warn_says_so_and_goes_on(ledger: Ledger, spender: Spender, caplog: pytest.LogCaptureFixture) -> None:
    budgets = Budgets(BudgetPolicy.WARN, {"run": Limits(tokens=50)})
    spend(ledger, spender, SMALL, budgets)
    with caplog.at_level(logging.WARNING):
        assert left(ledger, spender, budgets) == Limits()
    assert f"the tokens budget of run {spender.run_id} is used up: 60 of 50" in caplog.text
    assert len(exceeded(ledger)) == 1


def test_off_neither_counts_against_a_limit_nor_says_anything(ledger: Ledger, spender: Spender) -> None:
    budgets = Budgets(BudgetPolicy.OFF, {"run": Limits(tokens=50)})
    spend(ledger, spender, SMALL, budgets)
    assert left(ledger, spender, budgets) == Limits()
    assert exceeded(ledger) == []
    with ledger.read() as tx:
        assert total(tx, "run", spender.run_id) == SMALL


def test_a_budget_of_its_own_takes_the_place_of_the_configured_one(ledger: Ledger, spender: Spender) -> None:
    budgets = Budgets(BudgetPolicy.STRICT, {"run": Limits(tokens=10, trials=1)})
    with ledger.write() as tx:
        set_budget(tx, "run", spender.run_id, Limits(tokens=1000))
    spend(ledger, spender, SMALL, budgets)
    assert left(ledger, spender, budgets) == Limits(tokens=940)
    with ledger.write() as tx:
        set_budget(tx, "run", spender.run_id, Limits(tokens=20), BudgetPolicy.OFF)
    assert left(ledger, spender, budgets) == Limits()
    with ledger.write() as tx:
        set_budget(tx, "run", spender.run_id, Limits(tokens=20), BudgetPolicy.STRICT)
    with pytest.raises(BudgetExceeded):
        left(ledger, spender, Budgets(BudgetPolicy.OFF))


def test_passing_a_limit_is_an_event_the_first_time_only(ledger: Ledger, spender: Spender) -> None:
    budgets = Budgets(BudgetPolicy.STRICT, {"run": Limits(tokens=100)})
    for _ in range(4):
        spend(ledger, spender, SMALL, budgets)
    [data] = exceeded(ledger)
    assert data == {
        "scope": "run",
        "scope_id": spender.run_id,
        "measure": "tokens",
        "used": 120.0,
        "limit": 100.0,
        "policy": "strict",
    }


def test_two_who_pass_a_limit_together_are_told_once(ledger: Ledger, spender: Spender) -> None:
    budgets = Budgets(BudgetPolicy.STRICT, {"run": Limits(tokens=100)})
    of_run = Spender(run_id=spender.run_id)
    second = threading.Thread(target=spend, args=(ledger, of_run, SMALL, budgets))
    with ledger.write() as tx:
        charge(tx, of_run, SMALL, budgets, engine="test")
        second.start()
        time.sleep(0.3)  # the second has begun by now, and waits for the first
    second.join()
    assert len(exceeded(ledger)) == 1


def test_charges_from_many_processes_add_up_exactly(ledger: Ledger, spender: Spender) -> None:
    with (
        acting(charge_often, *place_of(ledger), spender, SMALL, 25) as (_, one),
        acting(charge_often, *place_of(ledger), spender, SMALL, 25) as (_, two),
        acting(charge_often, *place_of(ledger), Spender(project_id=spender.project_id), SMALL, 25) as (
            _,
            three,
        ),
    ):
        for message in ("ready", "done"):
            for pipe in (one, two, three):
                assert pipe.recv() == message
            if message == "ready":
                for pipe in (one, two, three):
                    pipe.send("go")
    with ledger.read() as tx:
        counts = {scope: total(tx, scope, number) for scope, number in spender.scopes()}
        [rows] = tx.connection.execute(sa.select(sa.func.count()).select_from(usage_table)).one()
    assert rows == 75
    for scope, times in (("attempt", 50), ("run", 50), ("project", 75)):
        assert counts[scope] == Usage(**{name: value * times for name, value in asdict(SMALL).items()})
