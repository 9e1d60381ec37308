"""What pages read that go over all runs: usage by day, what waits for a person, and how large the ledger is."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from ratchet.kernel import BudgetPolicy, Limits, RunStatus, StepStatus, Usage
from ratchet.ledger import Budgets, Ledger, Spender, change_run, change_step
from ratchet.ledger.attention import (
    budget_standings,
    count_steps,
    open_runs,
    questions_of,
    spent,
    steps_awaiting_review,
    today,
)
from ratchet.ledger.check import check, ledger_size
from ratchet.ledger.database import make_engine
from ratchet.ledger.projects import add_project
from ratchet.ledger.questions import add_clarification
from ratchet.ledger.runs import create_run, create_steps
from ratchet.ledger.usage import DAY_MS, add_session, charge, list_sessions, set_budget

USED = Usage(input_tokens=10, cached_tokens=1, output_tokens=5, cost_microusd=100, wall_ms=7, trials=1)


def test_usage_is_summed_by_day_as_it_is_charged(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project = add_project(tx, "work")
        run = create_run(tx, "demo", "one", project_id=project)
        charge(tx, Spender(None, run, project), USED, Budgets(), engine="codex", model="m")
        charge(tx, Spender(None, run, project), USED, Budgets(), engine="codex", model="m")
        charge(tx, Spender(None, run, project), USED, Budgets(), engine="codex")
        charge(tx, Spender(), USED, Budgets(), engine="llm", model="n")
        day = today(tx)
    with ledger.read() as tx:
        assert [(each.key, each.usage) for each in spent(tx, "day", since=day)] == [
            ((day,), USED + USED + USED + USED)
        ]
        engines = [(each.key, each.usage.trials) for each in spent(tx, "engine", since=day)]
        assert engines == [(("codex", "m"), 2), (("codex", ""), 1), (("llm", "n"), 1)]
        assert [each.key for each in spent(tx, "run", since=day)] == [(run,), (0,)]
        assert [each.key for each in spent(tx, "project", since=day, without=[project])] == [(None,)]
        assert spent(tx, "day", since=day + 1) == []
    assert check(ledger).findings == ()


def test_a_day_that_is_not_the_sum_of_its_usage_is_found(ledger: Ledger) -> None:
    with ledger.write() as tx:
        charge(tx, Spender(), USED, Budgets(), engine="llm")
    with ledger.write() as tx:
        tx.connection.execute(sa.text("UPDATE usage_days SET trials = 9, day = 20000"))
    [finding, *_] = check(ledger).findings
    assert "is not the sum of what was used that day" in finding.what


@pytest.mark.soak
def test_an_older_ledger_knows_its_days(database_url: str, tmp_path: Path) -> None:
    config = Config()
    config.set_main_option("script_location", "ratchet.ledger:migrations")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0006")
        for at in (DAY_MS - 1, DAY_MS, DAY_MS + 5):
            connection.execute(
                sa.text(
                    "INSERT INTO usage (at, engine, input_tokens, cached_tokens, output_tokens, cost_microusd, wall_ms,"
                    f" trials) VALUES ({at}, 'codex', 1, 0, 2, 3, 4, 1)"
                )
            )
    engine.dispose()
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger:
        with ledger.read() as tx:
            assert [(each.key, each.usage.trials) for each in spent(tx, "day", since=0)] == [
                ((1,), 2),
                ((0,), 1),
            ]
        assert check(ledger).findings == ()


def test_budgets_stand_as_they_were_set_or_configured(ledger: Ledger) -> None:
    with ledger.write() as tx:
        one, two, three = (create_run(tx, "demo", name) for name in "abc")
        set_budget(tx, "run", one, Limits(tokens=15), BudgetPolicy.WARN)
        set_budget(tx, "run", two, Limits())
        charge(tx, Spender(None, one), USED, Budgets(), engine="codex")
    configured = Budgets(limits={"run": Limits(trials=4)})
    with ledger.read() as tx:
        found = {each.scope_id: each for each in budget_standings(tx, "run", [one, two, three], configured)}
        assert budget_standings(tx, "run", [], configured) == []
    assert found.keys() == {one, three}
    assert (found[one].left, found[one].exhausted) == (Limits(tokens=0), ("tokens", 15.0, 15.0))
    assert (found[three].left, found[three].exhausted) == (Limits(trials=4), None)


def test_what_waits_is_found_by_the_runs_that_have_not_ended(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project = add_project(tx, "work")
        runs = [create_run(tx, "protocol", name, project_id=project) for name in "ab"]
        for run in runs:
            change_run(tx, run, RunStatus.RUNNING)
        steps = create_steps(tx, runs[0], [("one", {}), ("two", {})])
        change_step(tx, steps[0], StepStatus.RUNNING)
        change_step(tx, steps[0], StepStatus.NEEDS_QA)
        asked = {"question": "?", "applies_to": "planning"}
        add_clarification(tx, project, "of project", blocking=True, **asked)
        add_clarification(tx, project, "of run", run_id=runs[0], blocking=True, **asked)
        add_clarification(tx, project, "no matter", run_id=runs[0], blocking=False, **asked)
        change_run(tx, runs[1], RunStatus.BLOCKED)
    with ledger.read() as tx:
        found = open_runs(tx, RunStatus.BLOCKED, RunStatus.RUNNING, limit=5)
        assert [run.id for run in found] == runs[::-1]
        counted = count_steps(tx, runs)
        assert (counted[runs[0]].total, counted[runs[0]].by_status[StepStatus.NEEDS_QA]) == (2, 1)
        assert counted[runs[1]].total == 0
        assert [step.name for step in steps_awaiting_review(tx, runs, limit=5)] == ["one"]
        assert [each.key for each in questions_of(tx, found, limit=5)] == ["of project", "of run"]
        assert questions_of(tx, [], limit=5) == []


@pytest.mark.parametrize(("wanted", "found"), [({"engine": "codex"}, [3, 1]), ({"failed": True}, [2])])
def test_sessions_are_found_by_engine_and_by_failure(
    ledger: Ledger, wanted: dict[str, object], found: list[int]
) -> None:
    with ledger.write() as tx:
        for engine, failure in (("codex", None), ("claude", "timeout"), ("codex", None)):
            add_session(tx, role="author", engine=engine, usage=Usage(), failure=failure)
    with ledger.read() as tx:
        assert [each.id for each in list_sessions(tx, **wanted)] == found  # type: ignore[arg-type]


def test_a_ledger_tells_its_size_without_being_read(ledger: Ledger) -> None:
    with ledger.write() as tx:
        create_run(tx, "demo", "one")
    size = ledger_size(ledger)
    assert size.bytes > 0
    assert (size.given["runs"], size.given["events"], size.given["jobs"]) == (1, 1, 0)
