"""Home: what runs, what needs a person, what to do first; and the way from a run to its own page."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.kernel import Direction, Limits, RunStatus, StepStatus, Usage
from ratchet.ledger import Budgets, Ledger, Spender, Transaction, change_run, change_step
from ratchet.ledger.agents import (
    add_version,
    create_agent,
    end_creation,
    get_agent,
    move_current,
    quarantine_version,
)
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import add_protocol
from ratchet.ledger.questions import ApprovalStatus, add_clarification, get_approval, request_approval
from ratchet.ledger.research import open_research, record_specialist
from ratchet.ledger.runs import create_run, create_steps
from ratchet.ledger.usage import charge, set_budget
from ratchet.runtime import Runtime
from ratchet.runtime.processes import register
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<script>alert(1)</script>"
COMMIT = "c" * 40


def moving(tx: Transaction, kind: str, name: str, **more: object) -> int:
    run_id = create_run(tx, kind, name, **more)  # type: ignore[arg-type]
    change_run(tx, run_id, RunStatus.RUNNING)
    return run_id


def stopped(tx: Transaction, kind: str, name: str, to: RunStatus, reason: str, **more: object) -> int:
    run_id = moving(tx, kind, name, **more)
    change_run(tx, run_id, to, reason=reason)
    return run_id


def needs(client: TestClient) -> dict[str, dict[str, object]]:
    return {each["kind"]: each for each in client.get("/console/?format=json").json()["needs"]}


@pytest.mark.soak
def test_an_empty_ledger_says_what_to_do_first(visitor: Visitor) -> None:
    page = visitor.open()
    assert page.get_by_role("heading", name="Research").is_visible()
    assert page.get_by_text("ratchet demo").is_visible()
    visitor.check()


@pytest.mark.soak
@pytest.mark.parametrize("width", [1060, 1200, 1280, 1600])
def test_the_menu_stays_on_one_line(visitor: Visitor, width: int) -> None:
    page = visitor.open()
    page.set_viewport_size({"width": width, "height": 900})
    links = page.locator("#places a")
    tops = {box["y"] for each in links.all() if (box := each.bounding_box()) is not None}
    assert len(tops) == 1


def test_what_runs_is_shown_with_how_far_it_is(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        flow = moving(tx, "workflow", HOSTILE, spec={"workflow": {}}, simulated=True)
        first, *_ = create_steps(tx, flow, [(name, {}) for name in "abcd"])
        change_step(tx, first, StepStatus.RUNNING)
        change_step(tx, first, StepStatus.COMPLETED)
        search = moving(tx, "research", "packing", spec={"trials": 20})
        open_research(
            tx, search, task="packing", score_field="score", direction=Direction.MAX, keep_policy="strict"
        )
        record_specialist(tx, search, "shape", Usage(), problem="429 from the endpoint")
        moving(tx, "agent", "greeter", spec={"message": "Be brief."})
    running = visitor_client.get("/console/?format=json").json()["running"]
    assert [(run["kind"], run["progress"]["words"]) for run in running] == [
        ("agent", "Be brief."),
        ("research", "0 of 20 trials; shape failed 1×: 429 from the endpoint"),
        ("workflow", "1 of 4 steps"),
    ]
    page = visitor_client.get("/console/").text
    assert HOSTILE not in page
    assert page.count("is-simulated") == 1


def test_everything_that_waits_for_a_person_is_listed(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        project = add_project(tx, "shop")
        asking = stopped(tx, "protocol", "0001-a", RunStatus.BLOCKED, "asks", project_id=project)
        add_clarification(
            tx, project, "ci", run_id=asking, question="Which CI?", applies_to="planning", blocking=True
        )
        deploy = stopped(
            tx, "workflow", "deploy", RunStatus.BLOCKED, "waits for approval", spec={"workflow": {}}
        )
        request_approval(tx, "x", subject="deploy", question="Deploy?", run_id=deploy)
        stopped(tx, "workflow", "torn", RunStatus.BLOCKED, "the disk is full")
        stopped(tx, "workflow", "over", RunStatus.FAILED, "it crashed")
        stopped(tx, "workflow", "rests", RunStatus.PAUSED, "paused on request")
        judged = moving(tx, "protocol", "0002-b", project_id=project)
        [step] = create_steps(tx, judged, [("01-build", {})])
        change_step(tx, step, StepStatus.RUNNING)
        change_step(tx, step, StepStatus.NEEDS_QA)
        set_budget(tx, "run", judged, Limits(tokens=10))
        charge(tx, Spender(None, judged, project), Usage(input_tokens=11), Budgets(), engine="codex")
        register(tx, "gone", "worker", 2)
    with ledger.engine.begin() as connection:
        connection.execute(sa.text("UPDATE processes SET state = 'dead'"))
        connection.execute(
            sa.text(
                "INSERT INTO jobs (kind, queue, priority, payload, status, attempt, max_attempts, delivery, recoveries,"
                " process_id, created_at, due_at) VALUES ('k', 'default', 5, '{}', 'started', 1, 3, 1, 0, 'gone', 1, 1)"
            )
        )
    found = needs(visitor_client)
    assert {kind: need["why"] for kind, need in found.items()} == {
        "question": "planning of 0001-a waits for the answer",
        "approval": "deploy waits for a yes or a no",
        "blocked": "the disk is full",
        "budget": "11 of 10, policy strict",
        "dead": "it is silent, and 1 jobs are still assigned to it",
        "review": "it was carried out and is not judged yet",
        "paused": "paused on request",
        "failed": "it crashed",
    }
    assert all(need["next"] and str(need["command"]).startswith("ratchet ") for need in found.values())


def test_an_agent_in_quarantine_is_listed(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "agent", "greeter")
        agent = create_agent(tx, "greeter", "Greets.")
        add_version(
            tx, agent, commit=COMMIT, version="0.1.0", parent=None, summary="s", tools=[], run_id=run_id
        )
        end_creation(tx, agent.id, run_id=run_id)
        move_current(tx, agent, COMMIT, expected=None, why="promoted", reason="new")
    assert "quarantined" not in needs(visitor_client)
    with ledger.write(actor="test") as tx:
        quarantine_version(tx, get_agent(tx, "greeter"), COMMIT, "it crashed 5 times")
    need = needs(visitor_client)["quarantined"]
    assert (need["title"], need["path"]) == ("agent greeter 0.1.0", "/agents/greeter")


def test_work_that_nobody_does_is_told(visitor_client: TestClient, runtime: Runtime) -> None:
    with runtime.ledger.write(actor="test") as tx:
        runtime.enqueue(tx, "note", {"file": "none"})
    assert needs(visitor_client)["dead"]["command"] == "ratchet worker"


@pytest.mark.soak
def test_an_approval_is_given_on_the_page(visitor: Visitor, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        run_id = create_run(tx, "other", "deploy")
    page = visitor.open()
    with ledger.write(actor="test") as tx:
        asked = request_approval(tx, "x", subject="deploy", question=f"Deploy {HOSTILE}?", run_id=run_id)
    page.get_by_role("link", name=f"Deploy {HOSTILE}?").wait_for()
    visitor.check()
    visitor.phone()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_have_text(f"Approval {asked.id} is approved.")
    with ledger.read() as tx:
        assert get_approval(tx, asked.id).status is ApprovalStatus.APPROVED


def test_a_run_leads_to_the_page_of_its_flow(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        project = add_project(tx, "shop")
        protocol = create_run(tx, "protocol", "0001-a", project_id=project)
        add_protocol(tx, protocol, project, "0001-a", base_branch="main")
        setup = create_run(tx, "protocol", f"setup-{project}", project_id=project)
        search = create_run(tx, "research", "packing")
        open_research(tx, search, task="p", score_field="s", direction=Direction.MAX, keep_policy="strict")
        flow = create_run(tx, "workflow", "report", spec={"workflow": {}})
        plan = create_run(tx, "workflow", "plan:report")
        agent = create_run(tx, "agent", "greeter")
        plain = [create_run(tx, kind, "primes") for kind in ("workflow", "demo", "research")]

    def leads_to(run_id: int) -> tuple[int, str | None]:
        answer = visitor_client.get(f"/console/runs/{run_id}?format=json", follow_redirects=False)
        return answer.status_code, answer.headers.get("Location")

    assert [leads_to(each) for each in (protocol, setup, search, flow, plan, agent)] == [
        (303, f"/console/protocols/{protocol}?format=json"),
        (303, f"/console/projects/{project}?format=json"),
        (303, f"/console/research/{search}?format=json"),
        (303, f"/console/workflows/runs/{flow}?format=json"),
        (303, f"/console/workflows/runs/{plan}?format=json"),
        (303, "/console/agents/greeter?format=json"),
    ]
    assert [leads_to(each) for each in plain] == [(200, None)] * 3


@pytest.mark.soak
def test_a_plain_run_is_watched_paused_and_cancelled(
    visitor: Visitor, runtime: Runtime, ledger: Ledger
) -> None:
    with ledger.write(actor="test") as tx:
        run_id = moving(tx, "demo", "primes", spec={"deep": HOSTILE})
        [step] = create_steps(tx, run_id, [("block 0", {})])
    page = visitor.open(f"/runs/{run_id}")
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    with ledger.write(actor="test") as tx:
        change_step(tx, step, StepStatus.RUNNING)
    page.get_by_role("cell", name="step.running").wait_for()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_have_text(f"Run {run_id} is paused.")
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    visitor.check()
    visitor.phone()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()


@pytest.mark.soak
def test_runs_are_filtered_by_flow_and_status(visitor: Visitor, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        moving(tx, "workflow", "first")
        create_run(tx, "workflow", "second")
        moving(tx, "demo", "third")
    page = visitor.open("/runs")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Flow").select_option("workflow")
    page.get_by_label("Status").select_option("running")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "kind=workflow&status=running" in page.url
    visitor.check()
    visitor.phone()
    visitor.open("/runs?status=failed").get_by_text("No such runs here").wait_for()


def test_an_action_without_its_form_does_nothing(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        run_id = moving(tx, "demo", "primes")
        asked = request_approval(tx, "x", subject="s", question="q", run_id=run_id)
    paths = [f"/runs/{run_id}/actions/cancel", f"/approvals/{asked.id}/actions/approve"]
    for path in paths:
        assert visitor_client.post(f"/console{path}", data={"csrf": "wrong"}).status_code == 403
    with ledger.read() as tx:
        assert get_approval(tx, asked.id).status is ApprovalStatus.PENDING


def test_what_ended_is_shown_with_how_far_it_came(visitor_client: TestClient, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        done = moving(tx, "workflow", "count", spec={"workflow": {}})
        [step] = create_steps(tx, done, [("a", {})])
        change_step(tx, step, StepStatus.RUNNING)
        change_step(tx, step, StepStatus.COMPLETED)
        change_run(tx, done, RunStatus.COMPLETED)
        moving(tx, "workflow", "continues", spec={"workflow": {}})
    home = visitor_client.get("/console/?format=json").json()
    assert [(run["name"], run["progress"]["words"]) for run in home["ended"]] == [("count", "1 of 1 step")]
    assert f'/console/runs/{done}">count</a>' in visitor_client.get("/console/").text
