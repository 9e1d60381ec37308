"""A whole protocol that needs every secret of its project, and leaves none of them anywhere."""

from __future__ import annotations

import base64
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger.projects import change_project
from ratchet.observe import logs
from ratchet.runtime import Runtime, Worker, resume_run
from ratchet.server.app import create_app
from tests.forges.github_stand_in import GitHubStandIn
from tests.protocols.git_server import git_server
from tests.protocols.planned import NAME, change_settings, finished, told
from tests.protocols.world import World, encode_plan, make_remote
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
OPERATOR = "the-token-of-the-operator"
SECRETS = {
    "api_token": "an-api-token-of-the-project-4711",
    "git_token": "a-git-token-of-the-project-4712",
    "forge_token": GitHubStandIn.token,
    "webhook_secret": "a-webhook-secret-of-the-project-4713",
}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is written to the log, at its most talkative."""
    root, written = logging.getLogger(), io.StringIO()
    before = (root.handlers[:], root.level)
    logs.configure("debug", stream=written)
    yield written
    root.handlers[:], _ = before
    root.setLevel(before[1])


@pytest.fixture
def client(runtime: Runtime, loaded: Loaded, worker: Worker) -> TestClient:
    app = create_app(runtime, loaded, OPERATOR, process_id=worker.process_id)
    shown = {"Authorization": f"Bearer {OPERATOR}", "X-Project-Token": SECRETS["api_token"]}
    return TestClient(app, headers=shown)


@pytest.mark.soak
def test_no_secret_of_a_project_is_in_anything_that_a_protocol_leaves(
    runtime: Runtime, client: TestClient, log: io.StringIO, tmp_path: Path
) -> None:
    remote = make_remote(tmp_path)
    hook = remote / "hooks" / "pre-receive"
    with GitHubStandIn() as github, git_server(remote, SECRETS["git_token"]) as address:
        change_settings(runtime, "protocols", github_url=github.url)
        world = World(tmp_path, remote, runtime, _register(runtime, client, address))
        # A remote that says aloud what it was shown.
        hook.write_text(f"#!/bin/sh\necho you showed {SECRETS['git_token']} >&2\nexit 1\n")
        hook.chmod(0o755)
        run_id = _start(client, world.project_id)
        assert finished(world, run_id) is RunStatus.BLOCKED
        assert "you showed" in (world.protocol(run_id).reason or "")
        hook.unlink()
        with world.ledger.write(actor="test") as tx:
            resume_run(tx, runtime, run_id)
        for _ in range(2):
            _pass_ci(world, client, github, run_id)
        assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
        assert told(world, run_id, "pull_request_ready")
        answers = _every_answer(client, world, run_id)
    log.flush()
    assert world.git("show", f"{NAME}:a.txt") == "one"
    assert log.getvalue()
    assert _found_in(log.getvalue()) == []
    assert {path: _found_in(text) for path, text in answers.items() if _found_in(text)} == {}
    leaking = [file for file in tmp_path.rglob("*") if file.is_file() and _found_in(file.read_bytes())]
    assert leaking == []


def _register(runtime: Runtime, client: TestClient, address: str) -> int:
    made = client.post(
        "/projects",
        json={"name": "demo", "git_url": address, "ci_provider": "github", "secrets": SECRETS},
    )
    assert made.status_code == 200, made.text
    project_id: int = made.json()["id"]
    onboarding = f"/projects/{project_id}/onboarding"
    eventually(lambda: client.get(onboarding).json()["status"] == "completed")
    with runtime.ledger.write(actor="test") as tx:
        facts = {"checks": [], "required_checks": ["test"]}
        change_project(tx, project_id, remote="github.com/acme/demo", facts=facts)
    return project_id


def _start(client: TestClient, project_id: int) -> int:
    files = [
        {"filename": "00-setup.md", "content": "write setup.txt ready", "qa": "skip"},
        {"filename": "01-a.md", "content": "write a.txt one"},
    ]
    made = client.post(
        f"/projects/{project_id}/protocols",
        json={"protocol_name": NAME, "description": f"A change.\nPLAN={encode_plan(files)}"},
    )
    assert made.status_code == 200, made.text
    run_id: int = made.json()["id"]
    assert client.post(f"/protocols/{run_id}/actions/start").status_code == 200
    return run_id


def _pass_ci(world: World, client: TestClient, github: GitHubStandIn, run_id: int) -> None:
    """CI passes whatever waits for it."""

    def waiting() -> list[str]:
        return [each.commit or "" for each in world.steps(run_id) if each.awaits_ci]

    eventually(lambda: world.stands(run_id) or bool(waiting()))
    assert not world.stands(run_id), world.protocol(run_id).reason
    [commit] = waiting()
    said = github.check_run(NAME, commit, "success", name="test")
    secret = SECRETS["webhook_secret"]
    assert github.post_webhook(client, "check_run", said, "a-wrong-secret").status_code == 401
    assert github.post_webhook(client, "check_run", said, secret).status_code == 200


def _every_answer(client: TestClient, world: World, run_id: int) -> dict[str, str]:
    """Whatever the API answers to a question that changes nothing, about this project and its protocol."""
    numbers: dict[str, Any] = {
        "project_id": world.project_id,
        "protocol_id": run_id,
        "run_id": run_id,
        "step_id": world.steps(run_id)[1].step_id,
        "attempt_id": told(world, run_id, "attempt.started")[-1].attempt_id,
    }
    answers: dict[str, str] = {}
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        wanted = re.findall(r"\{(\w+)", path)
        # A stream does not end by itself.
        if "get" in methods and "stream" not in path and set(wanted) <= set(numbers):
            answers[path] = client.get(path.format(**numbers)).text
    found = client.get("/events", params={"limit": 500})
    assert found.status_code == 200
    answers["all events"] = found.text
    assert {"/projects/{project_id}", "/protocols/{protocol_id}", "/attempts/{attempt_id}/log"} <= set(
        answers
    )
    assert len(answers) > 20
    return answers


def _found_in(content: str | bytes) -> list[str]:
    """The names of the secrets that are in it, as they are or as git sends them."""
    data = content if isinstance(content, bytes) else content.encode()
    sent = base64.b64encode(f"x-access-token:{SECRETS['git_token']}".encode())
    known = {name: value.encode() for name, value in SECRETS.items()} | {"header": sent}
    return [name for name, value in known.items() if value in data]
