"""Agents over HTTP: as an Architect leaves them, on both databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.agentkit import StateStore
from ratchet.agents import operations, views
from ratchet.agents.architect import AgentRequest
from ratchet.agents.contract import place_of
from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.agents import AgentRow
from ratchet.ledger.runs import create_run, get_run
from ratchet.server.operation import shape_of
from tests.agents.made_up import NAME, current, make_agent, make_two_versions

READ = ("", "/versions", "/versions/latest", "/diff", "/tools", "/logs", "/state", "/state/history", "/runs")
WRITTEN = {
    "/feedback": {"message": "better"},
    "/rollback": None,
    "/promote": {"version": "0.0.0"},
    "/pin": {"version": "0.0.0"},
    "/unpin": None,
    "/call": {"tool": "greet"},
    "/state/restore": {"number": 1},
}


@pytest.fixture
def home(loaded: Loaded) -> Path:
    return loaded.home


@pytest.fixture
def greeter(ledger: Ledger, home: Path) -> AgentRow:
    """An agent at 0.1.0, made from 0.0.0."""
    return make_two_versions(ledger, home)


def test_agents_are_listed_by_name_in_pages(api: TestClient, ledger: Ledger, home: Path) -> None:
    assert api.get("/agents").json() == {"items": [], "next": None}
    for name in ("gamma", "alpha", "beta"):
        make_agent(ledger, home, name)
    first = api.get("/agents", params={"limit": 2})
    assert [each["name"] for each in first.json()["items"]] == ["alpha", "beta"]
    assert first.json()["next"] == "beta"
    assert first.headers["Link"] == '</agents?after=beta&limit=2>; rel="next"'
    rest = api.get(first.headers["Link"].split(">")[0][1:])
    assert [each["name"] for each in rest.json()["items"]] == ["gamma"]
    assert (rest.json()["next"], "Link" in rest.headers) == (None, False)


def test_one_agent_is_told_as_the_command_line_tells_it(
    api: TestClient, ledger: Ledger, loaded: Loaded, greeter: AgentRow
) -> None:
    with ledger.read() as tx:
        found = views.one_agent(tx, loaded.home, loaded.settings.agents, NAME)
    answer = shape_of(views.WholeAgent).model_validate(found).model_dump(mode="json")
    assert api.get(f"/agents/{NAME}").json() == {**answer, "serving": None}


@pytest.mark.soak
def test_an_agent_that_there_is_not_is_404_everywhere(api: TestClient) -> None:
    answers = [api.get(f"/agents/nobody{path}") for path in READ]
    answers += [api.post(f"/agents/nobody{path}", json=body) for path, body in WRITTEN.items()]
    answers.append(api.delete("/agents/nobody"))
    assert [(each.request.url.path, each.status_code) for each in answers if each.status_code != 404] == []
    assert answers[0].json()["type"] == "urn:ratchet:problem:not-found"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["%00", "..%2f..%2fetc", "x" * 5000, "a%0ab", "%ed%a0%80", "@", "a@b"])
def test_strange_names_name_nothing(api: TestClient, name: str) -> None:
    assert api.get(f"/agents/{name}").status_code in (404, 422)
    assert api.delete(f"/agents/{name}").status_code in (404, 422)
    assert api.get(f"/agents/{name}/logs").status_code in (404, 422)


def test_versions_come_in_pages_and_one_by_one(
    api: TestClient, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    page = api.get(f"/agents/{NAME}/versions", params={"limit": 1}).json()
    assert [(each["version"], each["is_current"], each["tag"]) for each in page["items"]] == [
        ("0.1.0", True, "v0.1.0")
    ]
    rest = api.get(f"/agents/{NAME}/versions", params={"before": page["next"]}).json()
    assert [(each["version"], each["on_line"]) for each in rest["items"]] == [("0.0.0", True)]
    one = api.get(f"/agents/{NAME}/versions/v0.1.0").json()
    assert [each["name"] for each in one["tools"]] == ["greet", "wave"]
    assert one["tools"][0]["input_schema"]["required"] == ["who"]
    assert api.get(f"/agents/{NAME}/versions/9.9.9").status_code == 404
    assert api.get(f"/agents/{NAME}/versions/the good one").status_code == 422


def test_two_versions_are_compared(api: TestClient, ledger: Ledger, home: Path, greeter: AgentRow) -> None:
    told = api.get(f"/agents/{NAME}/diff").json()
    assert (told["old"]["version"], told["new"]["version"]) == ("0.0.0", "0.1.0")
    assert (told["tools"]["added"], told["tools"]["least"]) == (["wave"], "minor")
    assert "-print('hello')\n+print('hi')\n" in told["diff"]
    back = api.get(f"/agents/{NAME}/diff", params={"old": "0.1.0", "new": "0.0.0"}).json()
    assert back["tools"]["removed"] == ["wave"]
    assert api.get(f"/agents/{NAME}/diff", params={"new": "0.0.0"}).status_code == 409


def test_an_agent_is_asked_for_and_waits_for_a_worker(api: TestClient, ledger: Ledger) -> None:
    wanted = {"name": NAME, "description": "Greet people.", "engine": "codex", "model": "m"}
    answer = api.post("/agents", json=wanted)
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert (run["action"], run["status"], run["message"]) == ("create", "pending", "Greet people.")
    assert answer.headers["Location"] == f"/runs/{run['run']}"
    assert api.get(answer.headers["Location"]).json()["kind"] == "agent"
    told = api.get(f"/agents/{NAME}").json()
    assert (told["status"], told["engine"], told["model"], told["current"]) == (
        "creating",
        "codex",
        "m",
        None,
    )
    events = api.get(f"/runs/{run['run']}/events").json()["items"]
    assert {event["request_id"] for event in events} == {answer.headers["X-Request-ID"]}
    assert api.post("/agents", json=wanted).status_code == 409


def test_every_field_of_an_agent_can_be_asked_for() -> None:
    assert set(operations.create.parameters) == set(AgentRequest.__dataclass_fields__)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "No Name"}, "an agent cannot be called 'No Name'"),
        ({"name": "../up"}, "an agent cannot be called"),
        ({"name": "architect"}, "an agent cannot be called 'architect'"),
        ({"name": "a\nb"}, "control characters"),
        ({"description": ""}, "at least 1 character"),
        ({"description": " \n"}, "cannot be empty"),
        ({"description": None}, "body.description"),
        ({"engine": "nobody"}, "no engine 'nobody'"),
        ({"engine": "replay:/etc/passwd"}, "cannot be named over HTTP"),
        ({"simulated": "yes"}, "body.simulated"),
        ({"colour": "red"}, "body.colour"),
    ],
)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_can_never_work_is_refused(api: TestClient, wrong: dict[str, Any], told: str) -> None:
    answer = api.post("/agents", json={"name": NAME, "description": "Greet.", "engine": "codex", **wrong})
    assert answer.status_code == 422, answer.text
    assert told in answer.json()["detail"]
    assert api.get("/agents").json()["items"] == []


def test_feedback_waits_for_a_worker_with_all_that_was_said(api: TestClient, greeter: AgentRow) -> None:
    given = {"message": "Be less formal.", "severity": "critical", "version": "0.0.0", "engine": "codex"}
    answer = api.post(f"/agents/{NAME}/feedback", json=given)
    assert answer.status_code == 202, answer.text
    run = api.get(answer.headers["Location"]).json()
    assert (run["spec"]["severity"], run["spec"]["source"]) == ("critical", "person")
    assert run["spec"]["version"] == api.get(f"/agents/{NAME}/versions/0.0.0").json()["commit"]
    [newest, oldest] = api.get(f"/agents/{NAME}/runs").json()["items"]
    assert (newest["run"], newest["message"], oldest["action"]) == (run["id"], "Be less formal.", "create")


def test_feedback_of_a_megabyte_is_taken_and_more_is_refused(
    api: TestClient, loaded: Loaded, greeter: AgentRow
) -> None:
    most = loaded.settings.agents.feedback_bytes
    taken = api.post(f"/agents/{NAME}/feedback", json={"message": "x" * most, "engine": "codex"})
    assert taken.status_code == 202, taken.text
    assert len(taken.json()["message"]) < 5_000
    refused = api.post(f"/agents/{NAME}/feedback", json={"message": "x" * (most + 1), "engine": "codex"})
    assert (refused.status_code, "at most 1048576" in refused.json()["detail"]) == (422, True)
    flood = api.post(f"/agents/{NAME}/feedback", json={"message": "x" * 11_000_000})
    assert flood.status_code == 413
    assert len(api.get(f"/agents/{NAME}/runs").json()["items"]) == 2


def test_runs_of_an_agent_come_in_pages(api: TestClient, ledger: Ledger, greeter: AgentRow) -> None:
    with ledger.write() as tx:
        create_run(tx, "agent", NAME, spec={"action": "feedback", "message": "more"})
    page = api.get(f"/agents/{NAME}/runs", params={"limit": 1}).json()
    assert [each["message"] for each in page["items"]] == ["more"]
    rest = api.get(f"/agents/{NAME}/runs", params={"before": page["next"]}).json()
    assert [each["action"] for each in rest["items"]] == ["create"]


def test_the_address_is_moved_held_and_let_go(api: TestClient, ledger: Ledger, greeter: AgentRow) -> None:
    back = api.post(f"/agents/{NAME}/rollback")
    assert (back.status_code, back.json()["version"]) == (200, "0.0.0")
    forward = api.post(f"/agents/{NAME}/promote", json={"version": "0.1.0"})
    assert (forward.json()["version"], current(ledger)) == ("0.1.0", greeter.current)
    named = api.post(f"/agents/{NAME}/rollback", json={"version": "0.0.0", "carry_state": False})
    assert named.json()["version"] == "0.0.0"
    pinned = api.post(f"/agents/{NAME}/pin", json={"version": "0.1.0"})
    assert (pinned.json()["version"], pinned.json()["pinned"]) == ("0.1.0", True)
    free = api.post(f"/agents/{NAME}/unpin")
    assert (free.json()["version"], free.json()["pinned"]) == ("0.1.0", False)
    events = [event["type"] for event in api.get("/events", params={"type": "agent.*"}).json()]
    assert events[:4] == ["agent.unpinned", "agent.pinned", "agent.promoted", "agent.rolled_back"]


def test_logs_are_told_line_by_line(api: TestClient, home: Path, greeter: AgentRow) -> None:
    logs = place_of(home, NAME).version(str(greeter.current)) / "logs"
    (logs / "runner.log").write_bytes(b"one\ntw\xff\n")
    (logs / "tuner.out").write_text("Traceback\n")
    told = api.get(f"/agents/{NAME}/logs", params={"lines": 1}).json()
    assert (told["lines"], told["is_cut"], told["commit"]) == (["tw\ufffd"], True, greeter.current)
    printed = api.get(f"/agents/{NAME}/logs", params={"server": "tuner", "printed": "true"}).json()
    assert (printed["server"], printed["lines"]) == ("tuner", ["Traceback"])
    assert api.get(f"/agents/{NAME}/logs", params={"lines": 10_001}).status_code == 422
    assert api.get(f"/agents/{NAME}/logs", params={"server": "../x"}).status_code == 422


def test_the_state_is_told_as_it_is_and_as_it_was_and_brought_back(
    api: TestClient, home: Path, greeter: AgentRow
) -> None:
    store = StateStore(place_of(home, NAME).version(str(greeter.current)))
    assert api.get(f"/agents/{NAME}/state").status_code == 409
    store.begin({"greetings": 0}, by="architect")
    for number in (1, 2):
        with store.edit(by="runner") as state:
            state["greetings"] = number
    assert api.get(f"/agents/{NAME}/state").json() == {"greetings": 2}
    assert api.get(f"/agents/{NAME}/state", params={"at": 1}).json() == {"greetings": 0}
    page = api.get(f"/agents/{NAME}/state/history", params={"limit": 2}).json()
    assert [(each["number"], each["by"]) for each in page["items"]] == [(3, "runner"), (2, "runner")]
    rest = api.get(f"/agents/{NAME}/state/history", params={"before": page["next"]}).json()
    assert [each["number"] for each in rest["items"]] == [1]
    back = api.post(f"/agents/{NAME}/state/restore", json={"number": 1})
    assert (back.json()["number"], back.json()["restored"]) == (4, 1)
    assert api.get(f"/agents/{NAME}/state").json() == {"greetings": 0}
    assert api.get(f"/agents/{NAME}/state", params={"at": 99}).status_code == 404
    assert api.post(f"/agents/{NAME}/state/restore", json={"number": 0}).status_code == 422


def test_an_answer_of_an_agent_that_is_no_valid_text_can_be_sent() -> None:
    """JSON can spell half of a pair of surrogates, which no encoding can."""
    half = "\ud800"
    answer = {"agent": NAME, "tool": "greet", "failed": False, "text": half, "structured": {half: half}}
    shape = shape_of(operations.AgentReply)
    sent = shape.model_validate({**answer, "content": ({"text": half},)}).model_dump_json()
    assert json.loads(sent)["content"] == [{"text": "?"}]


def test_an_agent_is_deleted_once(api: TestClient, home: Path, greeter: AgentRow) -> None:
    assert api.delete(f"/agents/{NAME}", params={"purge": "true"}).status_code == 204
    assert not list((home / "agents").rglob("runner*"))
    assert api.get(f"/agents/{NAME}").status_code == 404
    assert api.delete(f"/agents/{NAME}").status_code == 404


def test_a_key_opens_what_its_scope_says_of_its_agent_and_nothing_else(
    api: TestClient, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    make_agent(ledger, home, "other")
    made = api.post(f"/agents/{NAME}/keys", json={"key": "site", "scopes": ["call"]})
    bearer = {"Authorization": f"Bearer {made.json()['key']}"}

    assert made.status_code == 201
    assert made.json()["key"] not in api.get(f"/agents/{NAME}/keys").text
    assert api.get(f"/agents/{NAME}", headers=bearer).status_code == 200
    refused = [
        api.get("/agents/other", headers=bearer),
        api.get("/agents", headers=bearer),
        api.get("/runs", headers=bearer),
        api.get(f"/agents/{NAME}/state", headers=bearer),
        api.post(f"/agents/{NAME}/feedback", json={"message": "better"}, headers=bearer),
        api.post(
            f"/agents/{NAME}/call",
            content=b'{"tool": "feedback", "server": "\\u0074uner"}',
            headers={**bearer, "content-type": "application/json"},
        ),
        api.post(f"/agents/{NAME}/keys", json={"key": "more", "scopes": ["admin"]}, headers=bearer),
    ]
    assert [each.status_code for each in refused] == [403] * len(refused)
    assert api.delete(f"/agents/{NAME}/keys/site").status_code == 204
    assert api.get(f"/agents/{NAME}", headers=bearer).status_code == 401


@pytest.mark.parametrize("scope", ["feedback", "admin"])
def test_a_key_for_feedback_starts_one_change_at_a_time(
    api: TestClient, greeter: AgentRow, scope: str
) -> None:
    made = api.post(f"/agents/{NAME}/keys", json={"key": "site", "scopes": [scope]})
    bearer = {"Authorization": f"Bearer {made.json()['key']}"}
    answers = [
        api.post(f"/agents/{NAME}/feedback", json={"message": words}, headers=bearer)
        for words in ("better", "much better")
    ]
    assert [each.status_code for each in answers] == [202, 202 if scope == "admin" else 409]
    assert answers[0].json()["source"] == ("person" if scope == "admin" else "key")
    assert scope == "admin" or "is under way" in answers[1].text


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("scope", ["feedback", "admin"])
def test_what_feedback_is_about_is_not_said_by_callers(
    api: TestClient, greeter: AgentRow, ledger: Ledger, scope: str
) -> None:
    made = api.post(f"/agents/{NAME}/keys", json={"key": "site", "scopes": [scope]})
    bearer = {"Authorization": f"Bearer {made.json()['key']}"}
    about = {"message": "better", "about": ["greet"]}
    given = api.post(f"/agents/{NAME}/feedback", json=about, headers=bearer)
    assert given.status_code == (202 if scope == "admin" else 422), given.text
    if scope == "admin":
        with ledger.read() as tx:
            assert get_run(tx, given.json()["run"]).spec["about"] == ["greet"]
    unknown = api.post(f"/agents/{NAME}/feedback", json={**about, "about": ["greet", "add"]})
    assert (unknown.status_code, "there is no tool 'add'" in unknown.text) == (422, True)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("named", ["engine", "model"])
@pytest.mark.parametrize("hostile", ["replay:/dev/zero", "llm:http://169.254.169.254/v1#m", "/etc/passwd"])
def test_a_key_names_engines_and_models_by_their_names_alone(
    api: TestClient, greeter: AgentRow, named: str, hostile: str
) -> None:
    made = api.post(f"/agents/{NAME}/keys", json={"key": "site", "scopes": ["admin"]})
    bearer = {"Authorization": f"Bearer {made.json()['key']}"}
    for path, rest in (("feedback", {"message": "better"}), ("incidents/1/propose", {})):
        answer = api.post(f"/agents/{NAME}/{path}", json={**rest, named: hostile}, headers=bearer)
        assert answer.status_code in (403, 422), answer.text
        assert "an address or a file" in answer.text or "recording" in answer.text
