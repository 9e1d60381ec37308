"""The page of events: filtered, live, and the same as JSON."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.kernel import StepStatus
from ratchet.ledger import Ledger, change_step
from ratchet.ledger.runs import create_run, create_steps
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def add(ledger: Ledger, name: str) -> int:
    with ledger.write(actor="test") as tx:
        return create_run(tx, kind="workflow", name=name)


@pytest.mark.soak
def test_a_new_event_comes_onto_the_open_page(visitor: Visitor, ledger: Ledger) -> None:
    page = visitor.open("/events")
    assert page.get_by_text("Nothing has happened yet").is_visible()
    add(ledger, "first")
    page.get_by_role("cell", name="run.created").wait_for()
    visitor.check()
    visitor.phone()


@pytest.mark.soak
def test_what_was_opened_stays_open_when_the_page_changes(visitor: Visitor, ledger: Ledger) -> None:
    add(ledger, "first")
    page = visitor.open("/events")
    page.get_by_text("data").click()
    add(ledger, "second")
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.locator("details[open]").count() == 1
    visitor.check()


@pytest.mark.soak
def test_keys_lead_to_places_and_to_the_filter(visitor: Visitor, ledger: Ledger) -> None:
    add(ledger, "first")
    page = visitor.open()
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/console/events")
    page.keyboard.press("/")
    page.keyboard.type("step.*")
    page.keyboard.press("Enter")
    page.get_by_text("No such events").wait_for()
    page.keyboard.press("?")
    assert page.get_by_role("heading", name="Keys").is_visible()
    visitor.check()


def test_its_twin_is_what_the_page_shows(visitor_client: TestClient, ledger: Ledger) -> None:
    run_id = add(ledger, "<b>first</b>")
    twin = visitor_client.get("/console/events?format=json").json()
    assert [event["run_id"] for event in twin["events"]] == [run_id]
    page = visitor_client.get("/console/events").text
    assert "<b>first" not in page


@pytest.mark.soak
def test_events_are_found_by_what_they_are_about(visitor: Visitor, ledger: Ledger) -> None:
    first, second = add(ledger, "first"), add(ledger, "second")
    with ledger.write(actor="test") as tx:
        [step] = create_steps(tx, second, [("build", {})])
        change_step(tx, step, StepStatus.RUNNING)
    page = visitor.open(f"/events?step_id={step}")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Step").fill("")
    page.get_by_label("Run").fill(str(first))
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="run.created").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name=f"run {second}").click()
    page.wait_for_url(f"**/console/runs/{second}")


def test_the_events_of_a_long_history_come_page_by_page(visitor_client: TestClient, ledger: Ledger) -> None:
    for name in "abc":
        add(ledger, name)
    page = visitor_client.get("/console/events?type=run.*&limit=2")
    assert page.text.count("<tr id=") == 2
    older = page.text.partition('class="pages"><a href="')[2].partition('"')[0].replace("&amp;", "&")
    assert visitor_client.get(older).text.count("<tr id=") == 1
