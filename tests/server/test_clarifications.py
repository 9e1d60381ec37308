"""Questions over HTTP: listed, answered once, and what waited for the answer continues."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.projects.clarifications import ask
from tests.server.protocol_things import new_project, new_protocol, ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def project(api: TestClient, ledger: Ledger) -> int:
    """With two questions."""
    number = new_project(api)
    with ledger.write() as tx:
        ask(
            tx,
            number,
            "colour",
            "Which colour?",
            options=["red", "green"],
            applies_to="planning",
            blocking=True,
        )
        ask(tx, number, "a/b", "Which of the two?", applies_to="qa")
    return number


def test_questions_are_listed_in_their_order_and_answered(api: TestClient, project: int) -> None:
    place = f"/projects/{project}/clarifications"
    page = api.get(place, params={"limit": 1})
    assert [each["key"] for each in page.json()] == ["colour"]
    following = page.headers["Link"].partition(">")[0].removeprefix("<")
    assert [each["key"] for each in ok(api.get(following))] == ["a/b"]
    said = ok(api.post(f"{place}/colour", json={"answer": "red", "answered_by": "Ada"}))
    assert (said["status"], said["answer"], said["answered_by"]) == ("answered", "red", "Ada")
    assert ok(api.get(f"{place}/colour")) == said
    assert [each["key"] for each in ok(api.get(place, params={"open": True}))] == ["a/b"]
    assert ok(api.post(f"{place}/a/b", json={"answer": "b"}))["answered_by"] == "api"


def test_an_answer_is_given_once_and_must_be_one_that_is_offered(api: TestClient, project: int) -> None:
    place = f"/projects/{project}/clarifications/colour"
    for body in ({"answer": "blue"}, {"answer": None}, {}, {"answer": "red", "more": 1}):
        assert api.post(place, json=body).status_code == 422
    ok(api.post(place, json={"answer": "green"}))
    assert api.post(place, json={"answer": "red"}).status_code == 409
    assert ok(api.get(place))["answer"] == "green"


def test_what_waited_for_the_answer_goes_on(api: TestClient, project: int, ledger: Ledger) -> None:
    protocol = new_protocol(api, project)
    ok(api.post(f"/protocols/{protocol}/actions/start"))
    with ledger.write() as tx:
        tx.event("planning_blocked_clarifications", run_id=protocol)
        change_run(tx, protocol, RunStatus.BLOCKED, reason="waits for an answer")
    assert ok(api.get(f"/protocols/{protocol}"))["status"] == "blocked"
    ok(api.post(f"/projects/{project}/clarifications/colour", json={"answer": "red"}))
    assert ok(api.get(f"/protocols/{protocol}"))["status"] == "planning"


@on_sqlite
def test_a_question_about_a_protocol_is_its_own(api: TestClient, project: int, ledger: Ledger) -> None:
    protocol = new_protocol(api, project)
    with ledger.write() as tx:
        change_run(tx, protocol, RunStatus.RUNNING)
        ask(tx, project, "colour", "Which colour here?", applies_to="execution", run_id=protocol)
    place = f"/protocols/{protocol}/clarifications"
    assert [each["question"] for each in ok(api.get(place))] == ["Which colour here?"]
    assert ok(api.post(f"{place}/colour", json={"answer": "violet"}))["protocol_run_id"] == protocol
    assert ok(api.get(f"/projects/{project}/clarifications/colour"))["status"] == "open"
    assert api.get(f"{place}/nothing").status_code == 404
    assert api.get(f"{place}/colour", params={"step_id": 9}).status_code == 404
    assert api.post(f"/projects/{project}/clarifications/nothing", json={"answer": 1}).status_code == 404
