"""The pages of protocols and their attempts, with real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Dialog, expect

from ratchet.config import Loaded
from ratchet.kernel import Outcome, StepStatus, Verdict
from ratchet.ledger import Ledger, change_step
from ratchet.ledger.protocols import change_protocol
from ratchet.ledger.runs import close_attempt, get_step, open_attempt
from ratchet.projects.clarifications import ask
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.runtime import Runtime, Worker
from tests.protocols.world import World, make_project, make_remote, write_agents
from tests.runtime.worker_process import load
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor
from tests.server.protocol_things import checked_out, new_project, new_protocol, new_step, ok

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    """With agents that are small programs."""
    write_agents(tmp_path)
    return load(tmp_path, url)


@pytest.fixture
def protocol(api: TestClient) -> int:
    """One with two steps, the second after the first, and a loop."""
    number = new_protocol(api, new_project(api))
    new_step(api, number, 0, "00-build")
    loop = {"module_id": "checker", "behavior": "loop", "max_iterations": 2, "step_back": 1}
    new_step(api, number, 1, "01-check", depends_on=["00-build"], policy=loop)
    return number


def judged(ledger: Ledger, step_id: int) -> int:
    """An attempt at a step that failed its review, with its evidence."""
    finding = {"severity": "blocker", "file": "a.py", "line": 3, "rule": "tests", "message": HOSTILE}
    part = {"name": "checks", "outcome": "failed", "reason": "one check failed", "findings": [finding]}
    with ledger.write(actor="test") as tx:
        attempt_id = open_attempt(tx, get_step(tx, step_id))
        files = {
            "qa.json": json.dumps({"author": "a", "reviewer": "b", "parts": [part]}),
            "change.diff": f"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+{HOSTILE}\n",
            "prompt.md": f"Do it. {HOSTILE}",
        }
        kept = {
            name: ledger.artifacts.put(
                tx, text.encode(), name=name, media_type="text/html", attempt_id=attempt_id
            )
            for name, text in files.items()
        }
        verdict = Verdict(Outcome.FAILED, "one check failed", "qa", "0" * 64, report=kept["qa.json"].sha256)
        close_attempt(tx, attempt_id, Outcome.FAILED, "one check failed", verdict)
        for status in (StepStatus.RUNNING, StepStatus.FAILED):
            change_step(tx, step_id, status, reason=HOSTILE)
    return attempt_id


def test_without_protocols_the_page_says_how_to_get_one(visitor_client: TestClient, api: TestClient) -> None:
    page = visitor_client.get("/console/protocols").text
    assert "No protocols yet" in page
    assert "ratchet protocol new" in page
    assert "Register one" in page
    new_project(api)
    assert "None like that" in visitor_client.get("/console/protocols?project_id=1&status=blocked").text


def test_the_list_is_filtered_by_project_and_status(visitor_client: TestClient, api: TestClient) -> None:
    first, second = new_project(api), new_project(api, "other")
    numbers = [
        new_protocol(api, first, "0001-a"),
        new_protocol(api, first, "0002-b"),
        new_protocol(api, second),
    ]
    ok(api.post(f"/protocols/{numbers[1]}/actions/cancel"))

    def found(query: str) -> list[int]:
        twin = ok(visitor_client.get(f"/console/protocols?format=json{query}"))
        return [each["id"] for each in twin["protocols"]]

    assert found("") == numbers[::-1]
    assert found(f"&project_id={first}&status=") == [numbers[1], numbers[0]]
    assert found("&status=cancelled") == [numbers[1]]
    assert found("&limit=1") == [numbers[2]]
    assert 'rel="next"' in visitor_client.get("/console/protocols?limit=1").text


@pytest.mark.soak
def test_a_protocol_is_made_and_started_with_the_next_free_number(
    visitor_client: TestClient, api: TestClient, tmp_path: Path
) -> None:
    local, bare = checked_out(tmp_path)
    project = new_project(api, git_url=str(bare), local_path=str(local))
    new_protocol(api, project, "0041-before")
    wish: dict[str, Any] = {
        "project": project,
        "description": "Add a login page.\r\nWith tests.",
        "automatic": "true",
    }
    answer = send(visitor_client, "/console/protocols", **wish)
    assert answer.status_code == 303, answer.text
    made = ok(api.get(answer.headers["Location"].removeprefix("/console")))
    assert (made["protocol_name"], made["status"], made["automatic"]) == (
        "0042-add-a-login-page",
        "planning",
        True,
    )
    assert made["description"] == "Add a login page.\nWith tests."
    assert send(visitor_client, "/console/protocols", project=project, description="  ").status_code == 422
    assert visitor_client.post("/console/protocols", data=wish).status_code == 403


def test_its_twin_has_everything_that_the_page_shows_escaped(
    visitor_client: TestClient, api: TestClient, protocol: int, ledger: Ledger
) -> None:
    judged(ledger, 1)
    with ledger.write(actor="test") as tx:
        script = {"number": 7, "url": "javascript:alert(1)", "state": HOSTILE}
        change_protocol(tx, protocol, pull_request=script)
        ask(
            tx, 1, "colour", HOSTILE, options=[HOSTILE], blocking=True, applies_to="planning", run_id=protocol
        )
    twin = ok(visitor_client.get(f"/console/protocols/{protocol}?format=json"))
    assert [step["status"] for step in twin["steps"]] == ["failed", "pending"]
    assert twin["chosen"]["report"]["parts"][0]["findings"][0]["file"] == "a.py"
    assert [each["key"] for each in twin["questions"]] == ["colour"]
    assert (twin["policies"][0]["fired"], twin["policies"][0]["limit"]) == (0, 2)
    assert len(twin["graph"]["lines"]) == 1
    page = visitor_client.get(f"/console/protocols/{protocol}").text
    assert HOSTILE not in page
    assert "a.py:3" in page
    assert "javascript:" not in page
    assert visitor_client.get(f"/console/protocols/{protocol}?step_id=99").status_code == 404
    assert visitor_client.get(f"/console/protocols/{protocol}/spec").status_code == 200


def test_actions_are_offered_where_the_state_allows_them(
    visitor_client: TestClient, api: TestClient, protocol: int
) -> None:
    path = f"/console/protocols/{protocol}"

    def refused() -> set[str]:
        twin = ok(visitor_client.get(f"{path}?format=json"))
        return {name for name, why in twin["why_not"].items() if why}

    assert refused() == {"resume", "retry_latest", "open_pr"}
    assert visitor_client.post(f"{path}/actions/pause").status_code == 403
    assert send(visitor_client, f"{path}/actions/pause").status_code == 303
    assert refused() == {"pause", "run_next_step", "retry_latest", "open_pr"}
    assert send(visitor_client, f"{path}/actions/run_next_step").status_code == 409
    assert send(visitor_client, f"{path}/actions/explode").status_code == 404
    assert send(visitor_client, f"{path}/actions/cancel").status_code == 303
    twin = ok(visitor_client.get(f"{path}?format=json"))
    assert all(twin["why_not"].values())
    assert all(all(step["why_not"].values()) for step in twin["steps"])


@pytest.mark.soak
def test_an_attempt_shows_its_evidence_and_gives_its_files_as_downloads(
    visitor_client: TestClient, protocol: int, ledger: Ledger
) -> None:
    attempt = judged(ledger, 1)
    twin = ok(visitor_client.get(f"/console/attempts/{attempt}?format=json"))
    assert twin["prompt"]["text"].startswith("Do it.")
    assert "+++ b/a.py" in twin["diff"]["text"]
    assert twin["report"]["parts"][0]["outcome"] == "failed"
    page = visitor_client.get(f"/console/attempts/{attempt}").text
    assert HOSTILE not in page
    assert f"/console/protocols/{protocol}?step_id=1" in page
    file = visitor_client.get(f"/console/artifacts/{twin['artifacts'][0]['sha256']}")
    assert file.headers["Content-Type"] == "application/octet-stream"
    assert file.headers["Content-Disposition"].startswith("attachment")
    assert visitor_client.get(f"/console/artifacts/{'0' * 64}").status_code == 404
    assert visitor_client.get("/console/attempts/99").status_code == 404


@pytest.mark.soak
def test_an_answer_sets_a_blocked_protocol_going_before_the_readers_eyes(
    visitor: Visitor, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    remote = make_remote(tmp_path)
    world = World(tmp_path, remote, runtime, make_project(runtime, remote))
    world.plan("Greet.\nwrite a.txt hello")
    with world.ledger.write(actor="test") as tx:
        told = f"A change.\nPLAN={world.planned['next']}"
        run_id = create_protocol(tx, runtime, world.project_id, "0001-greet", description=told)
        ask(
            tx,
            world.project_id,
            "greeting",
            "Which greeting?",
            options=["hello", "good day"],
            recommended="hello",
            applies_to="planning",
            blocking=True,
            run_id=run_id,
        )
        start_protocol(tx, runtime, run_id)
    page = visitor.open(f"/protocols/{run_id}")
    status = page.locator(".head .badge")
    expect(status).to_have_text("blocked")
    page.get_by_label("good day").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status")).to_have_text("greeting is answered.")
    expect(status).to_have_text("completed")
    expect(page.locator(".graph .node.is-completed")).to_have_count(2)
    visitor.check()
    visitor.phone()
    page.get_by_role("link", name="Attempt 1").first.click()
    expect(page.get_by_role("heading", name="What it changed")).to_be_visible()
    visitor.check()
    visitor.phone()


@pytest.mark.soak
def test_steps_are_approved_and_run_by_their_buttons_and_the_log_is_live(
    visitor: Visitor, protocol: int, ledger: Ledger
) -> None:
    page = visitor.open(f"/protocols/{protocol}")
    asked: list[str] = []

    def agree(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.on("dialog", agree)
    page.locator("#step-1").get_by_role("button", name="Approve").click()
    expect(page.locator("#step-1 .badge")).to_have_text("completed")
    assert len(asked) == 1
    assert "00-build" in asked[0]
    expect(page.locator("#step-1").get_by_role("button", name="Approve")).to_be_disabled()
    page.locator("#step-2").get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#step-2 .badge")).to_have_text("running")
    with ledger.write(actor="test") as tx:
        attempt_id = open_attempt(tx, get_step(tx, 2))
        tx.event(
            "session.message", run_id=protocol, step_id=2, attempt_id=attempt_id, message="I look around"
        )
    expect(page.locator(".log")).to_contain_text("I look around")
    visitor.check()
    visitor.phone()
    visitor.open("/protocols")
    visitor.check()
