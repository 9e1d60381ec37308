"""Importing CodeMachine workspaces over HTTP: whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.runtime import Worker
from tests.runtime.conftest import ended
from tests.server.conftest import client_of
from tests.server.protocol_things import checked_out, new_project, ok

AGENTS = [
    {"id": "plan", "promptPath": "prompts/plan.md", "engineId": "codex", "model": "m", "moduleId": "again"},
    {"id": "build", "promptPath": "prompts/build.md"},
]
MODULES = [
    {"id": "again", "behavior": {"type": "loop", "action": "stepBack", "stepBack": 1, "maxIterations": 2}}
]
TOKEN = "token-of-the-project-01234"


def write_workspace(place: Path, agents: object = AGENTS) -> None:
    config = place / ".codemachine" / "config"
    config.mkdir(parents=True)
    (config / "main.agents.js").write_text(f"export default {json.dumps(agents)};\n")
    (config / "modules.js").write_text(f"module.exports = {json.dumps(MODULES)};\n")
    (place / ".codemachine" / "template.json").write_text('{"template": "spec-to-code", "version": "0.0.1"}')
    for name in ("plan", "build"):
        prompt = place / ".codemachine" / "prompts" / f"{name}.md"
        prompt.parent.mkdir(exist_ok=True)
        prompt.write_text(f"Do the {name}.\n")


@pytest.fixture
def checkout(api: TestClient, tmp_path: Path) -> Path:
    """The repository of project 1."""
    local, remote = checked_out(tmp_path)
    assert new_project(api, git_url=str(remote), local_path=str(local)) == 1
    return local


def wanted(**more: object) -> dict[str, object]:
    return {"protocol_name": "0001-imported", "workspace_path": ".", **more}


def test_a_workspace_becomes_a_planned_protocol(api: TestClient, checkout: Path) -> None:
    write_workspace(checkout)
    made = ok(api.post("/projects/1/codemachine/import", json=wanted()))
    protocol = made["protocol_run"]
    assert (protocol["status"], protocol["spec_validation_status"], made["job"]) == ("planned", "valid", None)
    assert protocol["template_config"]["template"]["template"] == "spec-to-code"
    first, second = ok(api.get(f"/protocols/{protocol['id']}/steps"))
    assert (first["step_name"], second["step_name"], first["engine_id"]) == ("00-plan", "01-build", "codex")
    assert (first["policy"][0]["behavior"], first["policy"][0]["module_id"]) == ("loop", "again")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("where", ["agent", "model", "template"])
def test_a_workspace_imported_with_a_project_token_names_no_recording_and_no_address(
    api: TestClient, checkout: Path, where: str
) -> None:
    recording = "replay:/etc/passwd"
    changed = {
        "agent": {"engineId": recording},
        "model": {"engineId": "llm", "model": "http://127.0.0.1:1/v1#m"},
    }
    write_workspace(checkout, [{**AGENTS[0], **changed.get(where, {})}])
    if where == "template":
        template = {"template": "t", "engineDefaults": {"execute": recording}}
        (checkout / ".codemachine" / "template.json").write_text(json.dumps(template))
    ok(api.put("/projects/1/secrets", json={"api_token": TOKEN}))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = api.post("/projects/1/codemachine/import", json=wanted(), headers=headers)
    assert (answer.status_code, "recording" in answer.json()["detail"]) == (400, True)
    assert ok(api.get("/projects/1/protocols", headers=headers)) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_one_that_cannot_be_read_is_400_and_leaves_nothing(api: TestClient, checkout: Path) -> None:
    write_workspace(checkout, [{"id": "plan"}])
    answer = api.post("/projects/1/codemachine/import", json=wanted())
    assert (answer.status_code, "plan" in answer.json()["detail"]) == (400, True)
    assert ok(api.get("/projects/1/protocols")) == []
    missing = api.post("/projects/1/codemachine/import", json=wanted(workspace_path="nowhere"))
    assert missing.status_code == 400


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_projects_token_opens_no_other_place_of_the_machine(
    api: TestClient, checkout: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    write_workspace(elsewhere)
    ok(api.put("/projects/1/secrets", json={"api_token": TOKEN}))
    outside = wanted(workspace_path=str(elsewhere))
    alone = {"Authorization": f"Bearer {TOKEN}"}
    for path in (str(elsewhere), "../elsewhere"):
        body = wanted(workspace_path=path)
        assert api.post("/projects/1/codemachine/import", json=body, headers=alone).status_code == 403
    assert api.post("/projects/1/codemachine/import", json=outside).status_code == 401
    ok(api.post("/projects/1/codemachine/import", json=outside, headers={"X-Project-Token": TOKEN}))


@pytest.mark.soak
def test_a_worker_may_do_it(worker: Worker, loaded: Loaded, tmp_path: Path) -> None:
    api = client_of(worker.runtime, loaded, worker)
    local, remote = checked_out(tmp_path)
    write_workspace(local)
    number = new_project(api, git_url=str(remote), local_path=str(local))
    begun = ok(api.post(f"/projects/{number}/codemachine/import", json=wanted(enqueue=True)))
    assert begun["protocol_run"] is None
    done = ended(worker.runtime.ledger, begun["job"]["job_id"])
    assert done.error is None
    assert ok(api.get(f"/protocols/{done.result['protocol_run_id']}"))["status"] == "planned"
    again = api.post(f"/projects/{number}/codemachine/import", json=wanted(enqueue=True))
    assert again.status_code == 409
