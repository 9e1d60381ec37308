"""Tools in the console: finding, trying and testing them, and choosing between their versions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.runs import create_run
from ratchet.ledger.tools import CallRow, get_tool, record_calls
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor
from tests.server.test_tools import define

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
PAGE = "/console/tools/double"
FAILING = """
type: python
description: "<script>alert(1)</script>"
python:
  source: |
    def run(**values):
        raise ValueError("<img src=x onerror=alert(1)>")
"""


@pytest.fixture
def double(loaded: Loaded) -> str:
    define(loaded)
    return "double"


def names(client: TestClient, query: str) -> list[str]:
    return [each["tool"] for each in client.get(f"/console/tools?format=json&{query}").json()["tools"]]


def test_tools_are_listed_in_pages_and_found_by_what_they_are_for(
    visitor_client: TestClient, double: str
) -> None:
    first = visitor_client.get("/console/tools?format=json&limit=2").json()
    assert len(first["tools"]) == 2
    assert min(names(visitor_client, f"after={first['next']}")) > first["next"]
    assert names(visitor_client, "tag=doubling") == ["double"]
    assert "double" not in names(visitor_client, "type=llm")
    found = visitor_client.get("/console/tools?q=twice+a+number")
    assert "its description is" in found.text
    assert names(visitor_client, "q=twice+a+number&tag=doubling") == ["double"]
    assert "No tool fits" in visitor_client.get("/console/tools?tag=nothing-like-it").text


def test_a_tool_is_tried_with_values_of_the_types_that_it_takes(
    visitor_client: TestClient, double: str
) -> None:
    told = send(visitor_client, f"{PAGE}/try", **{"input.n": "4"})
    assert told.status_code == 200, told.text
    assert "&#34;twice&#34;: 8" in told.text
    wrong = send(visitor_client, f"{PAGE}/try", **{"input.n": "four"})
    assert (wrong.status_code, "n must be a number" in wrong.text) == (422, True)
    assert visitor_client.get(f"{PAGE}?format=json").json()["tool"]["stats"]["runs"] == 1


def test_costs_that_are_known_in_part_are_shown_as_that(
    visitor_client: TestClient, ledger: Ledger, double: str
) -> None:
    visitor_client.get(PAGE)
    with ledger.write(actor="test") as tx:
        tool = get_tool(tx, double)
        known = CallRow(tool.id, tool.current_id or 0, True, 5.0, tx.now, cost_microusd=2_000_000, tokens=7)
        record_calls(tx, [known, replace(known, cost_microusd=0, unpriced_tokens=7)])
    page = visitor_client.get(PAGE).text
    assert "over $2.00" in page
    assert '<td class="number">$2.00</td>' in page
    assert '<td class="number">unknown</td>' in page


def test_a_tool_that_fails_its_examples_is_shown_as_broken_until_it_passes_them(
    visitor_client: TestClient, loaded: Loaded
) -> None:
    define(loaded, factor=3)
    assert "broken" not in visitor_client.get(PAGE).text
    send(visitor_client, f"{PAGE}/examples")
    assert "It fails 1 of 1 examples." in visitor_client.get(PAGE).text
    assert "It fails 1 of 1 examples." in visitor_client.get("/console/tools?type=python").text
    define(loaded, more="")
    assert "broken" not in visitor_client.get(PAGE).text


def test_a_call_of_a_run_is_scored(visitor_client: TestClient, ledger: Ledger, double: str) -> None:
    visitor_client.get(PAGE)
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, kind="workflow", name="twice")
        tool = get_tool(tx, double)
        record_calls(
            tx, [CallRow(tool.id, tool.current_id or 0, True, 5.0, tx.now, run_id=run_id, step="twice")]
        )
    told = send(visitor_client, f"{PAGE}/actions/score", run_id=str(run_id), step="twice", score="0")
    assert told.status_code in (200, 303), told.text
    assert visitor_client.get(f"{PAGE}?format=json").json()["tool"]["stats"]["mean_score"] == 0


def test_examples_are_run_as_tests(visitor_client: TestClient, loaded: Loaded) -> None:
    define(loaded, factor=3)
    assert "Must give" in visitor_client.get(f"{PAGE}/examples").text
    told = send(visitor_client, f"{PAGE}/examples")
    assert "$.twice is 6, not 4" in told.text


def test_a_hostile_tool_is_only_text(visitor_client: TestClient, loaded: Loaded) -> None:
    (loaded.home / "tools").mkdir()
    (loaded.home / "tools" / "bad.yaml").write_text(FAILING)
    (loaded.home / "tools" / "worse.yaml").write_text("type: <script>\n")
    told = send(visitor_client, "/console/tools/bad/try", more='{"a": "</code><script>"}')
    assert "&lt;img src=x" in told.text
    for path in ("", "/bad", "/bad/examples"):
        shown = visitor_client.get(f"/console/tools{path}")
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text + told.text
        assert "<img src=x" not in shown.text + told.text
    assert "1 definition cannot be used" in visitor_client.get("/console/tools").text


def test_versions_are_pinned_let_go_and_taken_back_as_far_as_that_can_be_done(
    visitor_client: TestClient, loaded: Loaded, double: str
) -> None:
    assert visitor_client.get(f"{PAGE}?format=json").json()["why_not"]["rollback"] is not None
    define(loaded, factor=3, more="change_type: minor")
    state = visitor_client.get(f"{PAGE}?format=json").json()
    assert [(each["version"], each["is_called"]) for each in state["versions"]] == [
        ("1.1.0", True),
        ("1.0.0", False),
    ]
    assert (state["why_not"]["rollback"], state["why_not"]["unpin"]) == (None, "it is not pinned")
    assert send(visitor_client, f"{PAGE}/actions/pin", version="1.0.0").status_code == 303
    pinned = visitor_client.get(f"{PAGE}?format=json").json()
    assert (pinned["tool"]["version"], pinned["why_not"]["rollback"]) == ("1.0.0", "it is pinned at 1.0.0")
    assert send(visitor_client, f"{PAGE}/actions/rollback").status_code == 409
    assert send(visitor_client, f"{PAGE}/actions/unpin").status_code == 303
    assert send(visitor_client, f"{PAGE}/actions/rollback").status_code == 303
    assert visitor_client.get(f"{PAGE}?format=json").json()["tool"]["version"] == "1.0.0"
    assert send(visitor_client, f"{PAGE}/actions/pin", version="9.9.9").status_code == 404


def test_nothing_is_called_or_changed_without_the_forms_own_secret(
    visitor_client: TestClient, double: str
) -> None:
    for path in ("try", "examples", "actions/pin", "actions/evolve", "actions/feedback"):
        form = {"input.n": "1", "version": "1.0.0", "task": "x", "good": "true"}
        assert visitor_client.post(f"{PAGE}/{path}", data=form).status_code == 403
    assert visitor_client.get(f"{PAGE}?format=json").json()["tool"]["stats"]["runs"] == 0


@pytest.mark.soak
def test_a_tool_is_found_tried_and_pinned_by_hand(visitor: Visitor, double: str) -> None:
    page = visitor.open("/tools")
    visitor.check()
    visitor.phone()
    page.keyboard.press("/")
    page.keyboard.type("twice a number")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=double, exact=True).click()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_enabled()
    visitor.check()
    visitor.phone()
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("n", exact=True).fill("21")
    page.get_by_role("button", name="Call it").click()
    expect(page.get_by_role("region", name="Its answer")).to_contain_text('"twice": 42')
    visitor.check()


@pytest.mark.soak
def test_a_version_that_comes_is_shown_at_once(
    visitor: Visitor, api: TestClient, loaded: Loaded, double: str
) -> None:
    page = visitor.open("/tools/double")
    define(loaded, factor=3, more="change_type: minor")
    # Another process finds it, and tells.
    assert api.get("/tools/double").status_code == 200
    page.get_by_role("cell", name="1.1.0 called").wait_for()
    visitor.check()
