"""Projects over HTTP: registered, changed, put away, and their secrets never told."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ratchet.ledger import Ledger
from tests.server.protocol_things import NOWHERE, new_project, ok

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
BAD: list[dict[str, object]] = [
    {},
    {"name": "shop"},
    {"name": "", "git_url": NOWHERE},
    {"name": "shop", "git_url": "ext::sh -c id"},
    {"name": "shop", "git_url": "--upload-pack=id"},
    {"name": "shop", "git_url": NOWHERE, "base_branch": "../x"},
    {"name": "shop", "git_url": NOWHERE, "ci_provider": "jenkins"},
    {"name": "shop", "git_url": NOWHERE, "default_models": {"nobody": "m"}},
    {"name": "shop", "git_url": NOWHERE, "local_path": "relative/path"},
    {"name": "shop", "git_url": NOWHERE, "secrets": {"unknown": "x"}},
    {"name": "shop", "git_url": NOWHERE, "secrets": {"api_token": ""}},
    {"name": "shop", "git_url": NOWHERE, "owner": "me"},
    {"name": 7, "git_url": NOWHERE},
]
OF_NOBODY = [
    ("GET", "/projects/9"),
    ("PATCH", "/projects/9"),
    ("DELETE", "/projects/9"),
    ("PUT", "/projects/9/secrets"),
    ("GET", "/projects/9/onboarding"),
    ("POST", "/projects/9/onboarding/actions/start"),
    ("GET", "/projects/9/branches"),
    ("POST", "/projects/9/branches/x/delete"),
    ("GET", "/projects/9/protocols"),
    ("GET", "/projects/9/clarifications"),
    ("GET", "/projects/9/clarifications/x"),
]


def test_registering_puts_the_onboarding_in_line(api: TestClient) -> None:
    answer = api.post("/projects", json={"name": "shop", "git_url": NOWHERE, "default_models": {"qa": "m"}})
    made = ok(answer)
    assert (made["name"], made["git_url"], made["base_branch"]) == ("shop", NOWHERE, "main")
    assert (made["default_models"], made["secret_names"]) == ({"qa": "m"}, [])
    assert answer.headers["Location"] == f"/projects/{made['id']}"
    assert ok(api.get(f"/projects/{made['id']}")) == made
    told = ok(api.get("/events", params={"project_id": made["id"], "kind": "onboarding"}))
    assert [event["type"] for event in told] == ["setup_enqueued"]
    [job] = ok(api.get("/queues/jobs"))
    assert (job["job_type"], job["status"]) == ("project_setup", "queued")


@on_sqlite
def test_a_name_is_taken_once(api: TestClient) -> None:
    new_project(api)
    assert api.post("/projects", json={"name": "shop", "git_url": NOWHERE}).status_code == 409


@on_sqlite
def test_bad_values_are_422_and_leave_nothing(api: TestClient) -> None:
    for body in BAD:
        assert api.post("/projects", json=body).status_code == 422, body
    assert ok(api.get("/projects")) == []
    assert ok(api.get("/events")) == []


@on_sqlite
def test_malformed_json_is_400(api: TestClient) -> None:
    answer = api.post("/projects", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:ratchet:problem:malformed-json")


def test_projects_are_listed_newest_first_and_paged(api: TestClient) -> None:
    numbers = [new_project(api, f"shop-{number}") for number in range(3)]
    page = api.get("/projects", params={"limit": 2})
    assert [each["id"] for each in page.json()] == [numbers[2], numbers[1]]
    following = page.headers["Link"].partition(">")[0].removeprefix("<")
    assert [each["id"] for each in ok(api.get(following))] == [numbers[0]]


@pytest.mark.soak
def test_secrets_are_told_to_nobody(api: TestClient, ledger: Ledger) -> None:
    number = new_project(api, secrets={"git_token": "very-secret-1"})
    said = api.put(f"/projects/{number}/secrets", json={"webhook_secret": "very-secret-2", "git_token": None})
    assert ok(said) == {"secret_names": ["webhook_secret"]}
    answers = [
        api.get(path).text
        for path in ("/projects", f"/projects/{number}", "/events", "/runs", "/queues/jobs", "/metrics")
    ]
    assert "very-secret" not in "".join(answers)
    with ledger.read() as tx:
        kept = str(tx.connection.exec_driver_sql("SELECT * FROM project_secrets").all())
    assert "webhook_secret" in kept
    assert "very-secret" not in kept


@on_sqlite
def test_a_bad_secret_is_refused_without_repeating_it(api: TestClient) -> None:
    number = new_project(api)
    for body in ({"api_token": "two\nlines-9876"}, {"forge_token": 9876}, {"nosuch": "value-9876"}):
        answer = api.put(f"/projects/{number}/secrets", json=body)
        assert answer.status_code == 422
        assert "9876" not in answer.text
    assert ok(api.get(f"/projects/{number}"))["secret_names"] == []


def test_a_project_is_changed_where_something_is_given(api: TestClient) -> None:
    number = new_project(api, ci_provider="github")
    changed = ok(api.patch(f"/projects/{number}", json={"name": "store", "base_branch": "trunk"}))
    assert (changed["name"], changed["base_branch"], changed["ci_provider"]) == ("store", "trunk", "github")
    changed = ok(api.patch(f"/projects/{number}", json={"ci_provider": None, "name": None}))
    assert (changed["name"], changed["ci_provider"]) == ("store", None)
    new_project(api, "other")
    assert api.patch(f"/projects/{number}", json={"name": "other"}).status_code == 409
    assert api.patch(f"/projects/{number}", json={"base_branch": "a..b"}).status_code == 422


@on_sqlite
def test_an_archived_project_is_put_away_and_taken_out_again(api: TestClient) -> None:
    number = new_project(api)
    assert api.delete(f"/projects/{number}").status_code == 204
    assert ok(api.get("/projects")) == []
    assert [each["id"] for each in ok(api.get("/projects", params={"archived": True}))] == [number]
    refused = api.post(f"/projects/{number}/protocols", json={"protocol_name": "0001-x"})
    assert refused.status_code == 409
    assert ok(api.patch(f"/projects/{number}", json={"archived": False}))["archived_at"] is None


def test_the_onboarding_is_shown_and_cannot_be_started_twice(api: TestClient) -> None:
    number = new_project(api)
    found = ok(api.get(f"/projects/{number}/onboarding"))
    assert (found["project_id"], found["status"], found["last_event"]["event_type"]) == (
        number,
        "pending",
        "setup_enqueued",
    )
    stages = [stage["name"] for stage in found["stages"]]
    assert stages == ["resolve", "discovery", "assets", "git", "clarifications"]
    assert api.post(f"/projects/{number}/onboarding/actions/start").status_code == 409
    ok(api.post(f"/runs/{found['protocol_run_id']}/actions/cancel"))
    begun = ok(api.post(f"/projects/{number}/onboarding/actions/start"))
    assert begun["job"]["job_type"] == "project_setup"


@on_sqlite
def test_an_unknown_project_is_404(api: TestClient) -> None:
    for method, path in OF_NOBODY:
        body: object = {} if method in ("PATCH", "PUT") else None
        assert api.request(method, path, json=body).status_code == 404, (method, path)


@on_sqlite
def test_a_local_path_may_stand_in_for_an_address(api: TestClient, tmp_path: Path) -> None:
    made = ok(api.post("/projects", json={"name": "here", "local_path": str(tmp_path)}))
    assert (made["git_url"], made["local_path"]) == (None, str(tmp_path))


@on_sqlite
def test_the_set_up_and_the_checks_are_changed_and_go_back_to_what_was_found(api: TestClient) -> None:
    number = new_project(api)
    given = {"checks": [{"name": "tests", "command": "python3 -m pytest -q | cat", "kind": "test"}]}
    changed = ok(api.put(f"/projects/{number}/checks", json=given))
    assert changed["checks"] == given["checks"]
    made = ok(api.put(f"/projects/{number}/setup", json={"commands": ["npm ci"]}))
    assert (made["commands"], made["settled"], made["checks_settled"]) == (["npm ci"], True, True)
    assert ok(api.get(f"/projects/{number}/setup")) == made
    assert ok(api.get(f"/projects/{number}"))["facts"]["checks"][0]["argv"][:2] == ["sh", "-c"]
    for wrong in (
        {"checks": [{"name": "x", "command": "a 'b"}]},
        {"checks": [{**given["checks"][0], "kind": "y"}]},
    ):
        assert api.put(f"/projects/{number}/checks", json=wrong).status_code == 422
    back = ok(api.put(f"/projects/{number}/checks", json={"checks": None}))
    assert back["checks_settled"] is False
