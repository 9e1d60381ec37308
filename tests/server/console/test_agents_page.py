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
from ratchet.kernel import Outcome, Verdict
from ratchet.ledger import Ledger
from ratchet.ledger.agents import AgentRow, get_agent, quarantine_version
from ratchet.ledger.evals import add_calls
from ratchet.ledger.production import count_calls, note_incident
from ratchet.ledger.questions import get_approval, request_approval
from ratchet.ledger.runs import close_attempt, create_run, find_or_create_step, open_attempt
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


def test_a_check_that_failed_is_not_shown_as_passed(
    visitor_client: TestClient, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    """Also in records of versions that were promoted although the tests of the version before failed."""
    checks = {"tests": {"outcome": "passed", "seconds": 1.0}, "base_tests": {"passed": False, "failures": 2}}
    with ledger.write() as tx:
        run_id = create_run(tx, "agent", NAME, spec={"action": "feedback", "agent": NAME})
        step, _ = find_or_create_step(tx, run_id, "change", {})
        attempt = open_attempt(tx, step, process_id="test")
        report = ledger.artifacts.put(
            tx, json.dumps({"checks": checks}).encode(), name="version.json", run_id=run_id
        )
        verdict = Verdict(Outcome.PASSED, "passed tests", "version", "0" * 64, report=report.sha256)
        close_attempt(tx, attempt, Outcome.PASSED, "passed", verdict)
    make_version(ledger, home, NAME, "0.1.1", parent=str(greeter.current), run_id=run_id)
    shown = visitor_client.get(f"{PAGE}?format=json").json()["checks"]["checks"]
    assert {each["check"]: each["outcome"] for each in shown} == {"tests": "passed", "base_tests": "failed"}


def test_a_change_that_waits_is_decided_on_a_page_with_diff_judges_and_cost(
    visitor_client: TestClient, ledger: Ledger, greeter: AgentRow
) -> None:
    data = {"agent": NAME, "findings": [HOSTILE], "diff": "-old\n+new\n", "cost": {"input_tokens": 7}}
    with ledger.write() as tx:
        run_id = create_run(tx, "agent", NAME, spec={"action": "feedback", "agent": NAME})
        asked = request_approval(tx, "once", subject="s", question="count is gone", data=data, run_id=run_id)
    page = f"{PAGE}/approvals/{asked.id}"
    assert f"/approvals/{asked.id}" in visitor_client.get(PAGE).text
    twin = visitor_client.get(f"{page}?format=json").json()
    assert (twin["diff"], twin["cost"], twin["why_not"]) == ("-old\n+new\n", "7 tokens, $0.0000", None)
    assert "<script>alert" not in visitor_client.get(page).text
    assert visitor_client.get(f"/console/agents/nobody/approvals/{asked.id}").status_code == 404
    assert send(visitor_client, f"{page}/actions/refuse").status_code == 303
    with ledger.read() as tx:
        assert get_approval(tx, asked.id).status == "refused"
    assert visitor_client.get(f"{page}?format=json").json()["why_not"] == "it is refused"


def test_evals_are_added_made_of_calls_and_removed(
    visitor_client: TestClient, ledger: Ledger, greeter: AgentRow
) -> None:
    call = {
        "commit": "c" * 40,
        "server": "runner",
        "tool": "greet",
        "arguments": {"who": HOSTILE},
        "outcome": "ok",
    }
    call |= {"result": {"text": "hi", "failed": False}, "milliseconds": 3, "is_whole": True, "created_at": 1}
    with ledger.write() as tx:
        add_calls(tx, [{**call, "agent_id": greeter.id}])
    evals = f"{PAGE}/evals"
    given = {"tool": "greet", "arguments": '{"who": "Ada"}', "expect": '{"contains": "Ada"}'}
    assert send(visitor_client, f"{evals}/actions/add", **given).status_code == 303
    assert send(visitor_client, f"{PAGE}/calls/1/actions/eval").status_code == 303
    found = visitor_client.get(f"{evals}?format=json").json()["evals"]
    assert [each["expect"] for each in found] == [{"contains": "Ada"}, {"equals": "hi"}]
    assert "<script>alert" not in visitor_client.get(evals).text
    assert send(visitor_client, f"{evals}/1/actions/remove").status_code == 303
    assert [each["id"] for each in visitor_client.get(f"{evals}?format=json").json()["evals"]] == [2]


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


def test_production_shows_calls_and_incidents_and_what_can_be_done_about_them(
    visitor_client: TestClient, ledger: Ledger, greeter: AgentRow
) -> None:
    found = {"kind": "failed", "server": "runner", "tool": "greet", "message": HOSTILE, "expect": None}
    found |= {"arguments": {"who": HOSTILE}, "is_whole": True}
    with ledger.write() as tx:
        current = get_agent(tx, NAME).current
        assert current is not None
        called = {"commit": current, "server": "runner", "tool": "greet", "milliseconds": 12}
        count_calls(tx, greeter.id, [{**called, "outcome": each} for each in ("ok", "failed", "error")])
        note_incident(tx, greeter, ["f" * 64, "e" * 64], at_commit=current, **found)
    page = f"{PAGE}/production"
    twin = visitor_client.get(f"{page}?format=json").json()
    [version] = twin["production"]["versions"]
    assert (version["calls"], version["failed"], version["errors"], version["p95_ms"]) == (3, 1, 1, 25)
    assert "<script>alert" not in visitor_client.get(page).text
    assert send(visitor_client, f"{PAGE}/incidents/1/actions/dismiss").status_code == 303
    assert send(visitor_client, f"{PAGE}/actions/learn", mode="auto").status_code == 303
    twin = visitor_client.get(f"{page}?format=json").json()
    assert (twin["incidents"][0]["status"], twin["production"]["learning"]) == ("dismissed", "auto")
