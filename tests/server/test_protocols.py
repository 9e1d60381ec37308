"""Protocols over HTTP: made, looked at, and moved only as the table of statuses allows."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.ledger import Ledger
from tests.server.protocol_things import new_project, new_protocol, new_step, ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
ACTIONS = ["start", "pause", "resume", "cancel", "run_next_step", "retry_latest", "open_pr"]
OF_ONE = [
    ("GET", "/protocols/{}"),
    *(("GET", f"/protocols/{{}}/{what}") for what in ("spec", "ci", "events", "artifacts", "steps")),
    ("GET", "/protocols/{}/events/stream"),
    ("GET", "/protocols/{}/clarifications"),
    ("GET", "/protocols/{}/clarifications/x"),
    *(("POST", f"/protocols/{{}}/actions/{action}") for action in ACTIONS),
]
BAD: list[dict[str, object]] = [
    {},
    {"protocol_name": ""},
    {"protocol_name": "../../etc"},
    {"protocol_name": "a b"},
    {"protocol_name": '0001-"quoted"'},
    {"protocol_name": "0001-x", "status": "bogus"},
    {"protocol_name": "0001-x", "status": "running"},
    {"protocol_name": "0001-x", "status": "completed"},
    {"protocol_name": "0001-x", "worktree_path": "/etc"},
    {"protocol_name": "0001-x", "protocol_root": "../.."},
    {"protocol_name": "0001-x", "template_config": "text"},
]


@pytest.fixture
def project(api: TestClient) -> int:
    return new_project(api)


def act(api: TestClient, protocol: int, action: str) -> int:
    return api.post(f"/protocols/{protocol}/actions/{action}").status_code


def status(api: TestClient, protocol: int) -> object:
    return ok(api.get(f"/protocols/{protocol}"))["status"]


def test_a_new_protocol_waits_until_it_is_started(api: TestClient, project: int) -> None:
    body = {"protocol_name": "0007-add-login", "description": "Add a login.", "template_config": {"a": [1]}}
    answer = api.post(f"/projects/{project}/protocols", json=body)
    made = ok(answer)
    assert (made["protocol_name"], made["number"], made["status"]) == ("0007-add-login", 7, "pending")
    assert (made["project_id"], made["base_branch"], made["template_config"]) == (project, "main", {"a": [1]})
    assert (made["spec_hash"], made["spec_validation_status"], made["spec_validated_at"]) == (
        None,
        None,
        None,
    )
    assert (made["worktree_path"], made["protocol_root"]) == (None, ".protocols/0007-add-login")
    assert answer.headers["Location"] == f"/protocols/{made['id']}"
    assert ok(api.get(f"/protocols/{made['id']}")) == made
    assert ok(api.get(f"/runs/{made['id']}"))["kind"] == "protocol"
    assert [job["job_type"] for job in ok(api.get("/queues/jobs"))] == ["project_setup"]


@on_sqlite
def test_bad_values_are_422_and_make_no_protocol(api: TestClient, project: int) -> None:
    for body in BAD:
        assert api.post(f"/projects/{project}/protocols", json=body).status_code == 422, body
    assert ok(api.get(f"/projects/{project}/protocols")) == []


def test_a_name_is_taken_once_in_a_project(api: TestClient, project: int) -> None:
    new_protocol(api, project)
    assert (
        api.post(f"/projects/{project}/protocols", json={"protocol_name": "0001-change"}).status_code == 409
    )
    new_protocol(api, new_project(api, "other"))


@on_sqlite
def test_the_base_branch_is_no_name_of_a_protocol(api: TestClient, project: int) -> None:
    for body in ({"protocol_name": "main"}, {"protocol_name": "main", "base_branch": "next"}):
        refused = api.post(f"/projects/{project}/protocols", json={**body, "status": "planned"})
        assert (refused.status_code, "base branch" in refused.json()["detail"]) == (409, True), refused.text
    body = {"protocol_name": "next", "base_branch": "next"}
    assert api.post(f"/projects/{project}/protocols", json=body).status_code == 409


@on_sqlite
def test_one_that_somebody_else_has_planned_begins_as_planned(api: TestClient, project: int) -> None:
    assert status(api, new_protocol(api, project, status="planned")) == "planned"


def test_protocols_are_paged_newest_first(api: TestClient, project: int) -> None:
    numbers = [new_protocol(api, project, f"000{number}-x") for number in range(1, 4)]
    page = api.get(f"/projects/{project}/protocols", params={"limit": 2})
    assert [each["id"] for each in page.json()] == [numbers[2], numbers[1]]
    following = page.headers["Link"].partition(">")[0].removeprefix("<")
    assert [each["id"] for each in ok(api.get(following))] == [numbers[0]]
    assert [each["id"] for each in ok(api.get("/protocols"))] == numbers[::-1]
    assert act(api, numbers[0], "cancel") == 200
    assert [each["id"] for each in ok(api.get("/protocols?unfinished=true"))] == [numbers[2], numbers[1]]


def test_starting_plans_and_cannot_be_done_twice(api: TestClient, project: int) -> None:
    protocol = new_protocol(api, project)
    begun = ok(api.post(f"/protocols/{protocol}/actions/start"))
    assert (begun["job"]["job_type"], begun["job"]["meta"]["run_id"]) == ("protocol", protocol)
    assert status(api, protocol) == "planning"
    assert act(api, protocol, "start") == 409


@on_sqlite
def test_starting_a_plan_whose_steps_are_started_by_hand_says_so(api: TestClient, project: int) -> None:
    for automatic, told in ((False, "by hand: see run_next_step"), (True, "is queued")):
        protocol = new_protocol(api, project, f"000{automatic:d}-x", status="planned", automatic=automatic)
        new_step(api, protocol)
        assert ok(api.post(f"/protocols/{protocol}/actions/start"))["message"].endswith(told)
        assert status(api, protocol) == "running"


def test_pausing_resuming_and_cancelling(api: TestClient, project: int) -> None:
    protocol = new_protocol(api, project)
    assert act(api, protocol, "resume") == 409
    assert (act(api, protocol, "pause"), act(api, protocol, "pause")) == (200, 200)
    assert status(api, protocol) == "paused"
    assert ok(api.post(f"/protocols/{protocol}/actions/resume"))["status"] == "planning"
    assert (act(api, protocol, "cancel"), act(api, protocol, "cancel")) == (200, 200)
    for action in set(ACTIONS) - {"cancel", "run_next_step", "retry_latest"}:
        assert act(api, protocol, action) == 409, action
    assert status(api, protocol) == "cancelled"


def test_a_cancelled_protocol_with_a_failed_step_is_not_revived(api: TestClient, project: int) -> None:
    protocol = new_protocol(api, project)
    new_step(api, protocol)
    assert act(api, protocol, "cancel") == 200
    for action in ("run_next_step", "retry_latest"):
        assert act(api, protocol, action) in (404, 409)
    assert status(api, protocol) == "cancelled"


def test_the_next_step_is_the_first_that_waits(api: TestClient, project: int) -> None:
    protocol = new_protocol(api, project)
    assert act(api, protocol, "run_next_step") == 404
    new_step(api, protocol, 0)
    new_step(api, protocol, 1)
    assert act(api, protocol, "retry_latest") == 404
    begun = ok(api.post(f"/protocols/{protocol}/actions/run_next_step"))
    assert begun["message"] == "00-part is queued"
    shown = ok(api.get(f"/protocols/{protocol}/steps"))
    assert [each["status"] for each in shown] == ["running", "pending"]


def test_its_events_are_in_the_order_of_the_world_and_have_the_known_names(
    api: TestClient, project: int
) -> None:
    protocol = new_protocol(api, project)
    new_step(api, protocol)
    found = ok(api.get(f"/protocols/{protocol}/events"))
    numbers = [event["id"] for event in found]
    assert numbers == sorted(numbers, reverse=True)
    assert {event["protocol_run_id"] for event in found} == {protocol}
    created = next(event for event in found if event["event_type"] == "step.created")
    assert (created["type"], created["step_run_id"], created["created_at"]) == (
        "step.created",
        created["step_id"],
        created["at"],
    )
    page = api.get(f"/protocols/{protocol}/events", params={"limit": 1})
    assert [event["id"] for event in page.json()] == numbers[:1]
    assert "before=" in page.headers["Link"]


def test_every_event_of_a_protocol_is_one_of_its_project(api: TestClient, project: int) -> None:
    protocol = new_protocol(api, project)
    new_step(api, protocol)
    of_run = ok(api.get(f"/protocols/{protocol}/events"))
    of_project = ok(api.get("/events", params={"project_id": project}))
    assert {event["id"] for event in of_run} <= {event["id"] for event in of_project}
    assert {event["project_id"] for event in of_run} == {project}


@on_sqlite
def test_its_spec_ci_artifacts_and_questions_can_be_read(
    api: TestClient, project: int, ledger: Ledger
) -> None:
    protocol = new_protocol(api, project)
    new_step(api, protocol)
    spec = ok(api.get(f"/protocols/{protocol}/spec"))
    assert (spec["validation_status"], spec["validation_errors"]) == ("valid", [])
    assert [step["id"] for step in spec["spec"]["steps"]] == ["00-part"]
    assert ok(api.get(f"/protocols/{protocol}"))["spec_hash"] == spec["spec_hash"]
    assert ok(api.get(f"/protocols/{protocol}/ci"))["commits"] == []
    with ledger.write() as tx:
        ledger.artifacts.put(tx, b"text", name="report.md", run_id=protocol)
    assert [each["name"] for each in ok(api.get(f"/protocols/{protocol}/artifacts"))["items"]] == [
        "report.md"
    ]
    assert ok(api.get(f"/protocols/{protocol}/clarifications")) == []


@on_sqlite
def test_an_unknown_protocol_is_404_and_so_is_a_run_of_another_kind(api: TestClient, project: int) -> None:
    setup_run = ok(api.get(f"/projects/{project}/onboarding"))["protocol_run_id"]
    for method, path in OF_ONE:
        for number in (setup_run, 99):
            assert api.request(method, path.format(number)).status_code == 404, (method, path)


@on_sqlite
def test_an_unknown_project_has_no_protocols(api: TestClient) -> None:
    assert api.post("/projects/9/protocols", json={"protocol_name": "0001-x"}).status_code == 404


@on_sqlite
def test_a_protocol_that_was_planning_plans_again_when_its_run_is_resumed(
    api: TestClient, project: int
) -> None:
    protocol = new_protocol(api, project)
    assert act(api, protocol, "start") == 200
    for action, after in (("pause", "paused"), ("resume", "planning"), ("cancel", "cancelled")):
        assert api.post(f"/runs/{protocol}/actions/{action}").status_code == 200
        assert status(api, protocol) == after


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("role", ["plan", "execute", "qa"])
def test_a_protocol_over_http_names_no_recording(api: TestClient, role: str) -> None:
    project = new_project(api)
    template = {"template": {"engineDefaults": {role: "replay:/dev/zero"}}}
    body = {"protocol_name": "0001-change", "template_config": template}
    answer = api.post(f"/projects/{project}/protocols", json=body)
    assert (answer.status_code, "recording" in answer.text) == (422, True)
