"""Branches over HTTP, of a real remote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.protocols.world import git
from tests.server.protocol_things import checked_out, new_project, new_protocol, ok

# What the remote does depends on no database.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def remote(tmp_path: Path, api: TestClient) -> Path:
    """That of project 1."""
    local, bare = checked_out(tmp_path)
    assert new_project(api, git_url=str(bare), local_path=str(local)) == 1
    git(bare, "branch", "feature/one", "main")
    return bare


def events(api: TestClient) -> list[str]:
    return [
        event["type"]
        for event in ok(api.get("/events", params={"project_id": 1}))
        if "branch" in event["type"]
    ]


def test_branches_are_those_of_the_remote_now(api: TestClient, remote: Path) -> None:
    assert ok(api.get("/projects/1/branches")) == {"branches": ["feature/one", "main"]}
    assert events(api) == ["branches_listed"]


def test_a_branch_is_deleted_on_a_clear_word_only(api: TestClient, remote: Path) -> None:
    for body in (None, {}, {"confirm": False}):
        assert api.post("/projects/1/branches/feature/one/delete", json=body).status_code == 400
    deleted = api.post("/projects/1/branches/feature/one/delete", json={"confirm": True})
    assert ok(deleted) == {"deleted": True, "branch": "feature/one"}
    assert ok(api.get("/projects/1/branches")) == {"branches": ["main"]}
    assert "branch_deleted" in events(api)


def test_what_must_not_be_deleted_is_not(api: TestClient, remote: Path) -> None:
    for branch, status in {"main": 409, "nothing": 404, "a..b": 422, "x%22y": 422, "-f": 422}.items():
        answer = api.post(f"/projects/1/branches/{branch}/delete", json={"confirm": True})
        assert answer.status_code == status, answer.text
    assert git(remote, "branch", "--list").split() == ["feature/one", "*", "main"]


def test_nor_the_branch_of_a_protocol_that_goes_on(api: TestClient, remote: Path) -> None:
    new_protocol(api, 1, "0001-change")
    git(remote, "branch", "0001-change", "main")
    assert api.post("/projects/1/branches/0001-change/delete", json={"confirm": True}).status_code == 409


def test_a_repository_that_is_not_here_is_409(api: TestClient) -> None:
    number = new_project(api)
    assert api.get(f"/projects/{number}/branches").status_code == 409


def test_a_remote_that_vanished_is_502(api: TestClient, remote: Path) -> None:
    shutil.rmtree(remote)
    assert api.get("/projects/1/branches").status_code == 502
