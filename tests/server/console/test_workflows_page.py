"""Workflows in the console: what is saved, starting one by its form, and a run as it goes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.flowkit.execution import Result, StepError
from ratchet.ledger import Ledger
from ratchet.ledger.questions import get_approval, request_approval
from ratchet.ledger.workflows import get_workflow
from ratchet.runtime.runs import enter_run
from ratchet.server.console.forms import MORE
from ratchet.workflows.runs.journal import Began, Completed, StepFailure, StepPlace, write_entry
from tests.cli.workflow_files import COUNT, counting, step, workflow
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "</code><script>alert('words')</script>"


@pytest.fixture
def saved(api: TestClient) -> str:
    assert api.post("/workflows", json={"spec": counting()}).status_code == 201
    return "counting"


@pytest.fixture
def run_id(api: TestClient, ledger: Ledger, saved: str) -> int:
    """A run that has begun."""
    started = api.post(f"/workflows/{saved}/runs", json={"inputs": {"text": "one two three"}}).json()[
        "run_id"
    ]
    with ledger.write(actor="test") as tx:
        enter_run(tx, started)
    return int(started)


def finish(
    ledger: Ledger, run_id: int, name: str, value: Any = None, *, wall_ms: float = 10.0, error: str = ""
) -> None:
    """A step of the run, as a worker writes it down."""
    place = StepPlace(run_id, 1, "test", ledger.artifacts)
    metrics = {"wall_ms": wall_ms, "cpu_ms": wall_ms / 2, "peak_bytes": 5_000_000, "cost_microusd": 120_000}
    end = (
        StepFailure(name, {}, StepError(error, 1, metrics))
        if error
        else Completed(name, Result(value, metrics))
    )
    with ledger.write(actor="test") as tx:
        row = write_entry(tx, place, None, Began(name, {"tool": name}))
        write_entry(tx, place, row, end)


def test_without_workflows_the_page_says_how_to_get_one(visitor_client: TestClient) -> None:
    page = visitor_client.get("/console/workflows").text
    assert "ratchet workflow save" in page
    assert visitor_client.get("/console/workflows?format=json").json() == {
        "workflows": [],
        "next": None,
        "runs": [],
    }
    assert "ratchet workflow run" in visitor_client.get("/console/workflows/runs").text


def test_a_form_starts_a_run_with_values_of_the_declared_types(
    visitor_client: TestClient, api: TestClient
) -> None:
    inputs = {
        "words": {"type": "array"},
        "n": {"type": "integer", "default": 3},
        "loud": {"type": "boolean", "required": False},
    }
    spec = workflow([step("count", input_mapping={"words": "inputs.words"})], {"count": COUNT}, inputs=inputs)
    assert api.post("/workflows", json={"spec": spec, "name": "typed"}).status_code == 201
    page = "/console/workflows/typed"
    form = {"input.words": '["a", "b"]', "input.n": "4", "input.loud": ""}
    answer = send(visitor_client, f"{page}/actions/run", **form)
    assert answer.status_code == 303, answer.text
    run = visitor_client.get(f"{answer.headers['location']}?format=json").json()
    assert '"n": 4' in run["inputs"]["text"]
    wrong = send(visitor_client, f"{page}/actions/run", **{"input.words": "a, b", "input.n": "x"})
    assert wrong.status_code == 422
    assert "words must be an array" in wrong.text
    assert "n must be an integer" in wrong.text


def test_a_schedule_is_made_paused_and_removed(visitor_client: TestClient, saved: str) -> None:
    page = f"/console/workflows/{saved}"
    form = {"input.text": "one two", "schedule": "nightly", "when": "every day at 3am"}
    assert send(visitor_client, f"{page}/actions/schedule", **form).status_code == 303
    assert send(visitor_client, f"{page}/actions/pause-schedule", schedule="nightly").status_code == 303
    [made] = visitor_client.get(f"{page}?format=json").json()["schedules"]
    assert (made["cron"], made["paused"], made["payload"]["inputs"]) == (
        "0 3 * * *",
        True,
        {"text": "one two"},
    )
    assert "nightly" in visitor_client.get(page).text
    assert send(visitor_client, f"{page}/actions/remove-schedule", schedule="nightly").status_code == 303
    assert visitor_client.get(f"{page}?format=json").json()["schedules"] == []


def test_nothing_is_done_without_the_forms_own_secret(
    visitor_client: TestClient, ledger: Ledger, saved: str, run_id: int
) -> None:
    for path in (f"runs/{run_id}/actions/cancel", f"{saved}/actions/run", f"{saved}/actions/delete"):
        assert visitor_client.post(f"/console/workflows/{path}", data={"input.text": "x"}).status_code == 403
    with ledger.read() as tx:
        assert get_workflow(tx, saved).name == saved


def test_a_run_tells_the_longest_way_and_escapes_what_programs_say(
    visitor_client: TestClient, ledger: Ledger, run_id: int
) -> None:
    finish(ledger, run_id, "split", ["one", HOSTILE], wall_ms=10)
    finish(ledger, run_id, "count", 3, wall_ms=30)
    finish(ledger, run_id, "longest", error=HOSTILE, wall_ms=5)
    page = f"/console/workflows/runs/{run_id}"
    progress = visitor_client.get(f"{page}?format=json").json()["progress"]
    assert [(each["step"], each["share"]) for each in progress["critical_path"]] == [
        ("split", 0.25),
        ("count", 0.75),
    ]
    states = {each["step"]: (each["status"], each["on_path"]) for each in progress["steps"]}
    assert states["longest"] == ("failed", False)
    assert states["tell"] == ("pending", False)
    assert "<script>alert" not in visitor_client.get(page).text
    closely = visitor_client.get(f"{page}?step=split")
    assert "&lt;script&gt;alert" in closely.text
    assert "<script>alert" not in closely.text


def test_a_very_long_value_is_cut(visitor_client: TestClient, ledger: Ledger, run_id: int) -> None:
    finish(ledger, run_id, "split", "x" * 200_000)
    shown = visitor_client.get(f"/console/workflows/runs/{run_id}?step=split&format=json").json()["step"]
    assert (shown["value"]["is_cut"], shown["value"]["characters"]) == (True, 200_002)
    assert len(shown["value"]["text"]) < 50_000


def test_other_runs_are_not_runs_of_a_workflow(visitor_client: TestClient, saved: str) -> None:
    assert visitor_client.get("/console/workflows/runs/77").status_code == 404
    assert visitor_client.get("/console/workflows/nobody").status_code == 404
    assert visitor_client.get(f"/console/workflows/{saved}?content=0000").status_code == 404


@pytest.mark.soak
def test_a_workflow_is_run_from_its_page_and_watched(visitor: Visitor, ledger: Ledger, saved: str) -> None:
    page = visitor.open("/workflows")
    page.get_by_role("link", name=saved).click()
    expect(page.locator("svg .node")).to_have_count(4)
    visitor.check()
    visitor.phone()
    page.get_by_label("text").fill("one two three")
    page.get_by_role("button", name="Run now").click()
    page.wait_for_url("**/workflows/runs/*")
    run_id = int(page.url.rpartition("/")[2])
    with ledger.write(actor="test") as tx:
        enter_run(tx, run_id)
    finish(ledger, run_id, "split", ["one"])
    page.locator("svg .is-completed").wait_for()
    page.get_by_role("row", name="split").get_by_role("link", name="split", exact=True).click()
    expect(page.get_by_role("region", name="The value of split")).to_contain_text('"one"')
    visitor.check()
    visitor.phone()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    page.locator(".head .is-cancelled").wait_for()
    assert page.get_by_role("button", name="Pause").is_disabled()


def test_a_typed_answer_is_given_on_the_page(visitor_client: TestClient, ledger: Ledger, run_id: int) -> None:
    with ledger.write(actor="test") as tx:
        data = {"values": {}, "answer_schema": {"type": "integer", "minimum": 1}}
        asked = request_approval(tx, "once", subject="s", question="How many?", data=data, run_id=run_id)
    place = f"/console/workflows/runs/{run_id}"
    page = visitor_client.get(place).text
    assert f"{place}/approvals/{asked.id}/actions/answer" in page
    assert "How many?" in page
    assert f"{place}/approvals/{asked.id}/actions/approve" not in page

    assert (
        send(visitor_client, f"{place}/approvals/{asked.id}/actions/answer", answer="no").status_code == 422
    )
    assert send(visitor_client, f"{place}/approvals/{asked.id}/actions/answer", answer="7").status_code == 303
    with ledger.read() as tx:
        assert get_approval(tx, asked.id).answer == 7


@pytest.mark.soak
def test_what_waits_for_a_person_is_approved_on_the_page(
    visitor: Visitor, ledger: Ledger, run_id: int
) -> None:
    page = visitor.open(f"/workflows/runs/{run_id}")
    with ledger.write(actor="test") as tx:
        asked = request_approval(tx, "once", subject="step publish", question="Publish it?", run_id=run_id)
    page.get_by_text("Publish it?").wait_for()
    visitor.check()
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("Approved.").wait_for()
    with ledger.read() as tx:
        assert get_approval(tx, asked.id).status == "approved"


@pytest.mark.soak
def test_a_tool_that_a_workflow_brings_has_a_page_which_its_runs_lead_to(
    visitor_client: TestClient, api: TestClient
) -> None:
    inputs = {"words": {"type": "array"}}
    spec = workflow([step("count", input_mapping={"words": "inputs.words"})], {"count": COUNT}, inputs=inputs)
    assert api.post("/workflows", json={"spec": spec, "name": "brings"}).status_code == 201
    answer = send(visitor_client, "/console/workflows/brings/actions/run", **{"input.words": '["a", "b"]'})
    run = visitor_client.get(answer.headers["location"]).text
    [place] = set(re.findall(r'href="(/console/tools/[^"]+)"', run))
    assert place.startswith("/console/tools/count?workflow=")
    shown = visitor_client.get(place)
    assert shown.status_code == 200
    # Every way on from there keeps to the tool of that workflow.
    for way in set(re.findall(r'(?:href|action)="(/console/tools/count[^"]*)"', shown.text)):
        assert place.partition("?")[2] in way
    own, _, asked = place.partition("?")
    pinned = send(visitor_client, f"{own}/actions/pin?{asked}", version="1.0.0")
    assert (pinned.status_code, pinned.headers["location"]) == (303, place)
    assert visitor_client.get(f"{place}&format=json").json()["tool"]["pinned"]
    told = send(visitor_client, f"{own}/try?{asked}", **{MORE: '{"words": ["a"]}'})
    assert told.status_code == 200, told.text
    assert visitor_client.get(own).status_code == 404
