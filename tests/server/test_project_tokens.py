"""Tokens of projects: needed beside the server's token, and alone enough for that project's things and no others."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.questions import request_approval
from ratchet.ledger.runs import create_run, get_step, open_attempt
from ratchet.runtime import Runtime
from ratchet.server import app as app_module
from ratchet.server.project_scope import ALLOWED
from tests.server.conftest import client_of, listening_to
from tests.server.protocol_things import new_project, new_protocol, new_step, ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
MINE, THEIRS = "token-of-mine-0123456789", "token-of-theirs-0123456789"


class Place:
    """Two projects with a token each, and one without, each with a protocol, a step, an attempt and an artifact."""

    def __init__(self, api: TestClient, ledger: Ledger) -> None:
        self.api, self.ledger = api, ledger
        self.mine, self.theirs, self.open = (self._filled(name) for name in ("mine", "theirs", "open"))
        with ledger.write() as tx:
            self.nobodys = create_run(tx, "research", "of nobody")
            tx.event("note.made", message="of nobody")
        for thing, token in ((self.mine, MINE), (self.theirs, THEIRS)):
            ok(api.put(f"/projects/{thing['project']}/secrets", json={"api_token": token}))

    def _filled(self, name: str) -> dict[str, object]:
        project = new_project(self.api, name)
        protocol = new_protocol(self.api, project)
        step = new_step(self.api, protocol)
        with self.ledger.write() as tx:
            attempt = open_attempt(tx, get_step(tx, step))
            kept = self.ledger.artifacts.put(
                tx, name.encode(), name=f"{name}.txt", run_id=protocol, attempt_id=attempt
            )
            tx.event("session.message", run_id=protocol, attempt_id=attempt, message=f"secret of {name}")
            approval = request_approval(
                tx,
                once=name,
                subject=name,
                question=f"secret of {name}?",
                run_id=protocol,
                attempt_id=attempt,
            )
        return {
            "project": project,
            "protocol": protocol,
            "step": step,
            "attempt": attempt,
            "artifact": kept.sha256,
            "approval": approval.id,
        }

    def paths(self, thing: dict[str, object]) -> list[str]:
        """Everything that can be read of a project's thing."""
        project, protocol, step, attempt = (
            thing[name] for name in ("project", "protocol", "step", "attempt")
        )
        return [
            f"/projects/{project}",
            f"/projects/{project}/onboarding",
            f"/projects/{project}/protocols",
            f"/projects/{project}/clarifications",
            f"/protocols/{protocol}",
            f"/protocols/{protocol}/spec",
            f"/protocols/{protocol}/ci",
            f"/protocols/{protocol}/events",
            f"/protocols/{protocol}/artifacts",
            f"/protocols/{protocol}/clarifications",
            f"/protocols/{protocol}/steps",
            f"/protocols?project_id={project}",
            f"/steps/{step}",
            f"/attempts/{attempt}",
            f"/attempts/{attempt}/log",
            f"/attempts/{attempt}/artifacts",
            f"/runs/{protocol}",
            f"/runs/{protocol}/steps",
            f"/runs/{protocol}/events",
            f"/runs/{protocol}/artifacts",
            f"/runs?project_id={project}",
            f"/events?project_id={project}",
            f"/events?run_id={protocol}",
            f"/events?step_id={step}",
            f"/events?attempt_id={attempt}",
            f"/queues/jobs?run_id={protocol}",
            f"/approvals?run_id={protocol}",
            f"/approvals/{thing['approval']}",
        ]


@pytest.fixture
def place(api: TestClient, ledger: Ledger) -> Place:
    return Place(api, ledger)


@pytest.fixture
def holder(runtime: Runtime, loaded: Loaded) -> TestClient:
    """One who holds the token of the first project and nothing else."""
    client = client_of(runtime, loaded, token=None)
    client.headers["Authorization"] = f"Bearer {MINE}"
    return client


@pytest.fixture
def live_holder(holder: TestClient, place: Place) -> Iterator[httpx.Client]:
    with listening_to(holder) as client:
        yield client


def status(client: TestClient, path: str, token: str | None = None, method: str = "GET") -> int:
    headers = {} if token is None else {"X-Project-Token": token}
    return client.request(method, path, headers=headers).status_code


@pytest.mark.soak
def test_the_operator_needs_the_token_of_a_project_that_has_one(place: Place) -> None:
    for path in place.paths(place.mine):
        assert status(place.api, path) == 401, path
        assert status(place.api, path, "wrong") == 401, path
        assert status(place.api, path, THEIRS) == 403, path
        assert status(place.api, path, MINE) == 200, path
    for path in place.paths(place.open):
        assert status(place.api, path) == 200, path
        assert status(place.api, path, MINE) == 403, path


def test_and_for_everything_that_changes_something(place: Place) -> None:
    changes = [
        *(f"/protocols/{place.mine['protocol']}/actions/{action}" for action in ("pause", "cancel", "start")),
        *(f"/steps/{place.mine['step']}/actions/{action}" for action in ("run", "run_qa", "approve")),
        f"/runs/{place.mine['protocol']}/actions/cancel",
        f"/approvals/{place.mine['approval']}/approve",
    ]
    for path in changes:
        assert status(place.api, path, None, "POST") == 401, path
        assert status(place.api, path, THEIRS, "POST") == 403, path
    with place.ledger.read() as tx:
        assert get_step(tx, int(str(place.mine["step"]))).status == "pending"
    assert status(place.api, changes[0], MINE, "POST") == 200


@pytest.mark.soak
@on_sqlite
def test_a_refusal_says_how_to_show_the_token(place: Place) -> None:
    answer = place.api.get(f"/projects/{place.mine['project']}")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert "X-Project-Token" in answer.json()["hint"]


@pytest.mark.soak
def test_a_number_in_another_spelling_opens_nothing(place: Place, holder: TestClient) -> None:
    theirs = place.theirs["protocol"]
    for spelling in (
        f"+{theirs}",
        f"%20{theirs}",
        f"0{theirs}",
        f"{theirs}.0",
        f"{theirs}%20",
        f"%2B{theirs}",
    ):
        for path in (f"/runs/{spelling}", f"/protocols/{spelling}/events", f"/events?run_id={spelling}"):
            assert status(holder, path) in (403, 404, 422), path
            assert status(place.api, path) in (401, 404, 422), path
    doubled = f"/queues/jobs?run_id={place.mine['protocol']}&run_id={theirs}"
    assert status(holder, doubled) == 403


@pytest.mark.soak
def test_one_who_holds_only_the_projects_token_sees_that_project(place: Place, holder: TestClient) -> None:
    for path in place.paths(place.mine):
        assert status(holder, path) == 200, path
    for thing in (place.theirs, place.open):
        for path in place.paths(thing):
            assert status(holder, path) == 403, path
    assert status(holder, f"/runs/{place.nobodys}") == 403
    assert status(holder, "/runs/9999") == 404


def test_lists_over_all_projects_are_cut_to_the_one(place: Place, holder: TestClient) -> None:
    project, protocol = place.mine["project"], place.mine["protocol"]
    assert [each["id"] for each in ok(holder.get("/projects"))] == [project]
    assert [each["id"] for each in ok(holder.get("/protocols"))] == [protocol]
    assert {each["project_id"] for each in ok(holder.get("/runs"))["items"]} == {project}
    for query in ("", "?since=0", "?type=session.*", "?type=run.created"):
        found = ok(holder.get(f"/events{query}"))
        assert found, query
        assert {event["project_id"] for event in found} == {project}, query
    assert status(holder, "/queues/jobs") == 403
    assert status(holder, "/approvals") == 403


def test_the_operator_sees_in_lists_what_needs_no_token_or_one_that_was_shown(place: Place) -> None:
    def projects(path: str, key: str, token: str | None = None) -> set[object]:
        found = ok(place.api.get(path, headers={} if token is None else {"X-Project-Token": token}))
        return {each[key] for each in (found if isinstance(found, list) else found["items"])}

    mine, open_, protocol = place.mine["project"], place.open["project"], place.mine["protocol"]
    assert projects("/runs?limit=500", "project_id") == {None, open_}
    assert projects("/runs?limit=500", "project_id", MINE) == {None, open_, mine}
    assert projects("/events?limit=500", "project_id") == {None, open_}
    assert projects("/protocols", "project_id") == {open_}
    assert projects("/protocols", "project_id", MINE) == {open_, mine}
    assert protocol not in projects("/approvals", "run_id")
    assert protocol in projects("/approvals", "run_id", MINE)
    assert {mine, open_} < projects("/projects", "id")


def test_an_artifact_is_there_for_who_may_see_it(place: Place, holder: TestClient) -> None:
    mine, theirs, open_ = (
        f"/artifacts/{thing['artifact']}" for thing in (place.mine, place.theirs, place.open)
    )
    assert (status(holder, mine), status(holder, theirs), status(holder, open_)) == (200, 404, 404)
    assert (status(place.api, mine), status(place.api, mine, MINE), status(place.api, open_)) == (
        404,
        200,
        200,
    )
    with place.ledger.write() as tx:
        place.ledger.artifacts.put(tx, b"theirs", name="same.txt", run_id=int(str(place.mine["protocol"])))
    answer = holder.get(theirs)
    assert (answer.status_code, "same.txt" in answer.headers["content-disposition"]) == (200, True)


@pytest.mark.soak
@on_sqlite
def test_everything_else_is_the_operators(place: Place, holder: TestClient) -> None:
    described = place.api.get("/openapi.json").json()["paths"]
    routes = {
        (method, route.path)
        for router in app_module._GUARDED
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert routes >= ALLOWED
    refused = routes - ALLOWED
    assert len(refused) > 60
    assert len(described) > 100
    project = place.mine["project"]
    for method, path in refused:
        filled = path.replace("{project_id}", str(project)).replace("{run_id}", str(place.mine["protocol"]))
        filled = filled.replace("{", "").replace("}", "").replace(":path", "")
        answer = holder.request(method, filled, json={})
        assert answer.status_code == 403, (method, path)
    assert ("PUT", "/projects/{project_id}/secrets") in refused


@on_sqlite
def test_a_token_that_two_projects_share_opens_neither(place: Place, holder: TestClient) -> None:
    place.api.put(
        f"/projects/{place.theirs['project']}/secrets",
        json={"api_token": MINE},
        headers={"X-Project-Token": THEIRS},
    )
    assert status(holder, "/projects") == 401


@on_sqlite
def test_a_token_that_was_taken_away_opens_nothing(place: Place, holder: TestClient) -> None:
    assert status(holder, "/projects") == 200
    place.api.put(
        f"/projects/{place.mine['project']}/secrets",
        json={"api_token": None},
        headers={"X-Project-Token": MINE},
    )
    assert status(holder, "/projects") == 401
    assert status(place.api, f"/projects/{place.mine['project']}") == 200


@on_sqlite
def test_who_did_something_with_a_projects_token_is_on_record(place: Place, holder: TestClient) -> None:
    assert status(holder, f"/steps/{place.mine['step']}/actions/approve", method="POST") == 200
    [event] = ok(holder.get(f"/events?type=manual_approval&run_id={place.mine['protocol']}"))
    assert event["actor"] == f"api of project {place.mine['project']}"


def test_a_stream_tells_only_what_its_listener_may_hear(place: Place, live_holder: httpx.Client) -> None:
    with live_holder.stream("GET", "/events/stream?since=0") as answer:
        heard = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                heard.append(line)
                if "secret of mine" in line:
                    break
    assert not any("of theirs" in line or "of open" in line or "of nobody" in line for line in heard)
    theirs = place.theirs
    for path in (
        f"/protocols/{theirs['protocol']}/events/stream",
        f"/attempts/{theirs['attempt']}/log/stream",
    ):
        assert live_holder.get(path).status_code == 403
    assert live_holder.get(f"/events/stream?run_id={theirs['protocol']}").status_code == 403
