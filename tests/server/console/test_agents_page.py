"""Agents in the console: their versions, what they were told, their inside, and a call of a tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.agentkit import StateStore
from ratchet.agents.contract import place_of
from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.agents import AgentRow, get_agent, quarantine_version
from ratchet.runtime import Runtime
from tests.agents.host.homes import Home
from tests.agents.made_up import NAME, current, make_two_versions, make_version
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
PAGE = f"/console/agents/{NAME}"
HOSTILE = "</code><script>alert('agent')</script>"


@pytest.fixture
def home(loaded: Loaded) -> Path:
    return loaded.home


@pytest.fixture
def greeter(ledger: Ledger, home: Path) -> AgentRow:
    """An agent at 0.1.0, made from 0.0.0, that has greeted once and logged something."""
    agent = make_two_versions(ledger, home)
    directory = place_of(home, NAME).version(str(agent.current))
    (directory / "state.json").write_text(json.dumps({"greetings": 0}))
    with StateStore(directory).edit(by="runner") as state:
        state["greetings"] = 1
    (directory / "logs" / "runner.log").write_text(f"greeted\n{HOSTILE}\n")
    return agent


def test_without_agents_the_page_says_how_to_make_one(visitor_client: TestClient) -> None:
    assert "ratchet agent create" in visitor_client.get("/console/agents").text
    assert visitor_client.get("/console/agents?format=json").json() == {"agents": [], "next": None}
    assert visitor_client.get("/console/agents/nobody").status_code == 404


def test_versions_are_a_graph_and_can_be_chosen_as_far_as_they_are_sound(
    visitor_client: TestClient, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    variant = make_version(
        ledger, home, NAME, "0.0.1", parent=str(greeter.current), summary=HOSTILE, promoted=False
    )
    with ledger.write() as tx:
        quarantine_version(tx, get_agent(tx, NAME), variant.commit, "it crashed")
    twin = visitor_client.get(f"{PAGE}?format=json").json()
    newest, now, first = twin["versions"]
    assert newest["why_not"]["rollback"] == "it is quarantined: it crashed"
    assert now["why_not"]["rollback"] == "it is the current version"
    assert first["why_not"] == {"rollback": None, "pin": None, "release": "it is not quarantined"}
    boxes = {box["text"].split()[0]: (box["status"], box["strong"]) for box in twin["drawing"]["boxes"]}
    assert boxes == {
        "0.0.0": ("led_here", True),
        "0.1.0": ("current", True),
        "0.0.1": ("quarantined", False),
    }
    assert "<script>alert" not in visitor_client.get(PAGE).text


def test_the_address_is_moved_pinned_and_let_go_by_forms(
    visitor_client: TestClient, ledger: Ledger, greeter: AgentRow
) -> None:
    refused = visitor_client.post(f"{PAGE}/actions/rollback", data={"version": "0.0.0"})
    assert (refused.status_code, current(ledger)) == (403, greeter.current)
    assert send(visitor_client, f"{PAGE}/actions/rollback", version="0.0.0").status_code == 303
    assert current(ledger) != greeter.current
    assert send(visitor_client, f"{PAGE}/actions/pin", version=str(greeter.current)).status_code == 303
    assert visitor_client.get(f"{PAGE}?format=json").json()["agent"]["pinned"] is True
    assert send(visitor_client, f"{PAGE}/actions/unpin").status_code == 303
    assert send(visitor_client, f"{PAGE}/actions/pin", version="9.9.9").status_code == 404


def test_what_is_inside_is_shown_escaped_and_brought_back(
    visitor_client: TestClient, home: Path, greeter: AgentRow
) -> None:
    compared = visitor_client.get(f"{PAGE}/diff").text
    assert "+print(&#39;hi&#39;)" in compared
    only_one = visitor_client.get(f"{PAGE}/diff?new=0.0.0").text
    assert "made from nothing" in only_one
    log = visitor_client.get(f"{PAGE}/logs").text
    assert "&lt;script&gt;alert" in log
    assert "<script>alert" not in log
    state = visitor_client.get(f"{PAGE}/state?format=json").json()
    assert json.loads(state["state"]["text"]) == {"greetings": 1}
    newest = state["changes"][0]["number"]
    with StateStore(place_of(home, NAME).version(str(greeter.current))).edit(by="test") as changed:
        changed["greetings"] = 7
    assert send(visitor_client, f"{PAGE}/state/actions/restore", number=newest).status_code == 303
    again = visitor_client.get(f"{PAGE}/state?format=json").json()
    assert json.loads(again["state"]["text"]) == {"greetings": 1}


def test_a_state_that_is_missing_is_told_of_and_no_error(
    visitor_client: TestClient, ledger: Ledger, home: Path
) -> None:
    make_two_versions(ledger, home)
    assert "does not exist" in visitor_client.get(f"{PAGE}/state").text


@pytest.mark.soak
def test_a_tool_is_called_and_its_answer_shown(
    visitor_client: TestClient, runtime: Runtime, loaded: Loaded
) -> None:
    Home(runtime, loaded).make_agent(HOSTILE)
    refused = visitor_client.post(f"{PAGE}/try?tool=say")
    assert refused.status_code == 403
    told = send(visitor_client, f"{PAGE}/try?tool=say", more="{}")
    assert told.status_code == 200, told.text
    assert "&lt;script&gt;alert" in told.text
    assert "<script>alert" not in told.text
    absent = send(visitor_client, f"{PAGE}/try?tool=nothing", more="{}")
    assert (absent.status_code, "there is no tool" in absent.text) == (422, True)


@pytest.mark.soak
def test_an_agent_is_told_what_was_wrong_and_watched(
    visitor: Visitor, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    page = visitor.open("/agents")
    page.get_by_role("link", name=NAME).click()
    page.wait_for_selector("body.is-live", state="attached")
    visitor.check()
    visitor.phone()
    page.get_by_label("What was wrong, or what is wanted").fill("Be less formal.")
    page.get_by_label("How bad it was").select_option("high")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("cell", name="Be less formal. feedback, high, from person").wait_for()
    page.wait_for_selector("body.is-live", state="attached")
    make_version(ledger, home, NAME, "0.2.0", parent=str(greeter.current), summary="hello there")
    page.get_by_role("cell", name="0.2.0 current").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row", name="0.0.0").get_by_role("button", name="Roll back", exact=True).click()
    page.get_by_role("cell", name="0.0.0 current").wait_for()
    page.get_by_role("row", name="Be less formal").get_by_role("button", name="Cancel").click()
    page.get_by_role("row", name="Be less formal").locator(".is-cancelled").wait_for()
    visitor.check()


@pytest.mark.soak
def test_the_other_places_of_an_agent_can_be_used_by_everybody(visitor: Visitor, greeter: AgentRow) -> None:
    page = visitor.open(f"/agents/{NAME}")
    for tab, heading in (
        ("Try a tool", "Try a tool of greeter"),
        ("Compare versions", "What versions of greeter differ in"),
        ("State", "State of greeter"),
        ("Logs", "Log of greeter"),
    ):
        page.get_by_role("navigation", name=f"Of {NAME}").get_by_role("link", name=tab).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        visitor.check()
