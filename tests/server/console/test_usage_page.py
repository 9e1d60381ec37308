"""Usage and budgets: sums by day, engine, run and project, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import Limits, Usage
from ratchet.ledger import Budgets, Ledger, Spender
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import charge, set_budget
from ratchet.server.console.administration import bars
from ratchet.server.service import hash_of
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
PAID = Usage(input_tokens=100, cached_tokens=10, output_tokens=20, cost_microusd=5000, wall_ms=2000)
UNPRICED = Usage(input_tokens=70, output_tokens=7, unpriced_tokens=77)


def spend(ledger: Ledger, name: str, used: Usage, engine: str, model: str | None = None, **more: Any) -> int:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "demo", name, **more)
        spender = Spender(None, run_id, more.get("project_id"))
        charge(tx, spender, used, Budgets(), engine=engine, model=model)
        charge(tx, spender, used, Budgets(), engine=engine, model=model)
    return run_id


def twin(client: TestClient, path: str = "") -> Any:
    return client.get(f"/console/usage?format=json{path}").json()


def test_usage_is_summed_by_day_engine_run_and_project(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        project = add_project(tx, "shop")
    run_id = spend(ledger, "paid", PAID, "codex", "gpt", project_id=project)
    spend(ledger, "unpriced", UNPRICED, "llm", "local")
    spend(ledger, "played", PAID, "replay:codex", "gpt")
    usage = twin(visitor_client)["usage"]
    assert (usage["total"]["tokens"], usage["total"]["cost_usd"]) == (634, None)
    assert usage["known_cost_usd"] == 0.02
    assert [
        (each["engine"], each["cost_usd"], each["simulated"], each["priced"]) for each in usage["by_engine"]
    ] == [
        ("codex", 0.01, False, True),
        ("replay:codex", 0.01, True, True),
        ("llm", None, False, False),
    ]
    assert (usage["replayed"]["tokens"], usage["unpriced"]["tokens"]) == (240, 154)
    assert usage["by_run"][0]["run_id"] == run_id
    assert [(each["project_id"], each["tokens"]) for each in usage["by_project"]] == [(project, 240)]
    assert [each["tokens"] for each in usage["by_day"]] == [634]
    assert usage["by_day"][0]["day"] == usage["period"][-1]
    assert len(usage["period"]) == 30


@pytest.mark.soak
def test_what_is_left_of_budgets_is_shown(visitor: Visitor, ledger: Ledger) -> None:
    page = visitor.open("/usage")
    assert page.get_by_text("Nothing was used").is_visible()
    run_id = spend(ledger, "<b>bold</b>", PAID, "codex", "gpt")
    with ledger.write(actor="test") as tx:
        set_budget(tx, "run", run_id, Limits(tokens=200, cost_usd=1.0))
    visitor.open("/usage")
    assert page.get_by_role("cell", name="exhausted").is_visible()
    assert page.get_by_role("cell", name="$0.9900").is_visible()
    assert page.get_by_role("cell", name="<b>bold</b>").is_visible()
    visitor.check()
    visitor.phone()


def test_usage_of_a_guarded_project_is_left_out(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        guarded = add_project(tx, "guarded", token_hash=hash_of(b"theirs"))
        set_budget(tx, "project", guarded, Limits(tokens=1000))
    spend(ledger, "hidden", PAID, "codex", project_id=guarded)
    found = twin(visitor_client)
    assert found["usage"]["total"]["tokens"] == 0
    assert (found["usage"]["by_run"], found["usage"]["by_project"]) == ([], [])
    assert found["budgets"]["standings"] == []


@pytest.mark.parametrize("days", ["0", "1000", "x"])
def test_a_period_that_is_none_is_refused(visitor_client: TestClient, days: str) -> None:
    assert visitor_client.get(f"/console/usage?days={days}").status_code == 422


def test_bars_show_the_smallest_and_nothing_of_nothing(url: str) -> None:
    drawn = bars([("a", 0), ("b", 1), ("c", 1000)])
    assert [bar.height for bar in drawn.bars] == [0, 2, 120]
    assert bars([]).bars == []
    assert bars([("a", 0)]).bars[0].height == 0
    assert bars([(str(day), 1) for day in range(366)]).width <= 900
