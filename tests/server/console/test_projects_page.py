"""The pages of projects: the list, one of them, its questions and its branches."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from ratchet.ledger import Ledger
from ratchet.ledger.questions import get_clarification
from ratchet.projects.clarifications import ask
from tests.protocols.world import git
from tests.server.console.forms import send
from tests.server.console.visitor import Visitor
from tests.server.protocol_things import NOWHERE, checked_out, new_project, new_protocol, ok

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = "<script>alert(1)</script>"


def test_without_projects_the_page_says_how_to_get_one(visitor_client: TestClient) -> None:
    page = visitor_client.get("/console/projects").text
    assert "No projects yet" in page
    assert "ratchet project add" in page


def test_a_project_is_registered_by_the_form(visitor_client: TestClient, api: TestClient) -> None:
    answer = send(visitor_client, "/console/projects", name="shop", git_url=NOWHERE, local_path="")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/console/projects/1")
    assert ok(api.get("/projects/1"))["git_url"] == NOWHERE
    again = send(visitor_client, "/console/projects", name="shop", git_url=NOWHERE)
    assert again.status_code == 409
    assert "already" in again.text


def test_the_set_up_and_the_checks_are_changed_by_forms(visitor_client: TestClient, api: TestClient) -> None:
    project = new_project(api)
    place = f"/console/projects/{project}"
    assert (
        send(visitor_client, f"{place}/checks", lines="tests = npm test\nlint=npm run lint").status_code
        == 303
    )
    assert send(visitor_client, f"{place}/setup", lines="npm ci\n").status_code == 303
    found = ok(api.get(f"/projects/{project}/setup"))
    assert [each["command"] for each in found["checks"]] == ["npm test", "npm run lint"]
    assert found["commands"] == ["npm ci"]
    assert "npm run lint" in visitor_client.get(place).text
    assert send(visitor_client, f"{place}/checks", lines="").status_code == 303
    assert ok(api.get(f"/projects/{project}/setup"))["checks_settled"] is False


def test_the_twin_of_a_project_is_what_its_page_shows_escaped(
    visitor_client: TestClient, api: TestClient, ledger: Ledger
) -> None:
    project = new_project(api, HOSTILE)
    with ledger.write(actor="test") as tx:
        ask(tx, project, "colour", HOSTILE, options=[HOSTILE, "red"], recommended="red", blocking=True)
        ask(tx, project, "size", "How large?", recommended={"most": 3})
    twin = ok(visitor_client.get(f"/console/projects/{project}?format=json"))
    assert [each["key"] for each in twin["questions"]] == ["colour", "size"]
    assert [each["recommended"] for each in twin["questions"][0]["choices"]] == [False, True]
    assert twin["onboarding"]["status"] == "pending"
    page = visitor_client.get(f"/console/projects/{project}").text
    assert HOSTILE not in page
    assert "onboarding waits for it" in page
    assert 'disabled title="the onboarding of project' in page


def test_an_answer_without_the_forms_secret_is_refused(
    visitor_client: TestClient, api: TestClient, ledger: Ledger
) -> None:
    project, other = new_project(api), new_project(api, "other")
    with ledger.write(actor="test") as tx:
        asked = ask(tx, project, "colour", "Which?", options=["red", "blue"]).id
    path = f"/console/projects/{project}/clarifications/{asked}/actions/answer"
    assert visitor_client.post(path, data={"answer": '"red"'}).status_code == 403
    assert send(visitor_client, path, answer="green").status_code == 422
    foreign = path.replace(f"projects/{project}", f"projects/{other}")
    assert send(visitor_client, foreign, answer='"red"').status_code == 404
    assert send(visitor_client, path, answer='"red"', next="//evil").headers["Location"] == "/console/"
    with ledger.read() as tx:
        assert get_clarification(tx, asked).answer == "red"


def test_everything_is_answered_as_recommended(
    visitor_client: TestClient, api: TestClient, ledger: Ledger
) -> None:
    project = new_project(api)
    with ledger.write(actor="test") as tx:
        numbers = [
            ask(tx, project, key, "?", recommended=said).id
            for key, said in (("a", {"most": 3}), ("b", None), ("c", False))
        ]
    path = f"/console/projects/{project}/clarifications/actions/recommended"
    assert send(visitor_client, path).status_code == 303
    with ledger.read() as tx:
        assert [get_clarification(tx, number).answer for number in numbers] == [{"most": 3}, None, False]


def test_branches_are_deleted_but_not_those_that_work_depends_on(
    visitor_client: TestClient, api: TestClient, tmp_path: Path
) -> None:
    local, bare = checked_out(tmp_path)
    project = new_project(api, git_url=str(bare), local_path=str(local))
    new_protocol(api, project, "0001-change")
    for name in ("0001-change", "feature/one"):
        git(bare, "branch", name, "main")
    twin = ok(visitor_client.get(f"/console/projects/{project}/branches?format=json"))
    refused = {each["name"]: each["why_not"] for each in twin["branches"]}
    assert refused["feature/one"] is None
    assert "protocol 1" in refused["0001-change"] or "protocol 2" in refused["0001-change"]
    assert "never deleted" in refused["main"]
    path = f"/console/projects/{project}/branches/actions/delete"
    assert send(visitor_client, path, branch="feature/one").status_code == 400
    assert send(visitor_client, path, branch="main", confirm="true").status_code == 409
    assert send(visitor_client, path, branch="feature/one", confirm="true").status_code == 303
    assert git(bare, "branch", "--list").split() == ["0001-change", "*", "main"]


@pytest.mark.soak
def test_a_project_with_a_token_is_shown_to_those_who_show_it(
    visitor_client: TestClient, api: TestClient
) -> None:
    project = new_project(api, "secret-shop", secrets={"api_token": "its-own-token"})
    assert "secret-shop" not in visitor_client.get("/console/projects").text
    assert visitor_client.get(f"/console/projects/{project}").status_code == 401
    assert send(visitor_client, "/console/protocols", project=project, description="x").status_code == 401
    assert send(visitor_client, "/console/project-token", token="its-own-token").status_code == 303
    assert "secret-shop" in visitor_client.get(f"/console/projects/{project}").text


@pytest.mark.soak
def test_a_question_comes_onto_the_open_page_and_what_was_typed_stays(
    visitor: Visitor, api: TestClient, ledger: Ledger
) -> None:
    project = new_project(api)
    with ledger.write(actor="test") as tx:
        ask(tx, project, "words", "What should it say?", blocking=True)
    page = visitor.open(f"/projects/{project}")
    page.get_by_label("Your answer").fill("good morning")
    page.get_by_role("heading", name="Questions").click()
    with ledger.write(actor="test") as tx:
        ask(
            tx, project, "colour", "Which colour?", options=["red", "blue"], recommended="blue", blocking=True
        )
    expect(page.get_by_role("radio", name="blue")).to_be_checked()
    expect(page.get_by_label("Your answer")).to_have_value("good morning")
    visitor.check()
    visitor.phone()
    page.locator("#question-1").get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status")).to_have_text("words is answered.")
    with ledger.read() as tx:
        assert get_clarification(tx, 1).answer == "good morning"
    visitor.open("/projects")
    visitor.check()
