"""A protocol that was really carried out, as the API shows it: what was asked, said, changed, judged and used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.runtime import Worker
from tests.protocols.world import World, encode_plan, make_project, make_remote, write_agents
from tests.runtime.worker_process import load
from tests.server.conftest import client_of
from tests.server.protocol_things import ok
from tests.waiting import eventually


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    write_agents(tmp_path)
    return load(tmp_path, url)


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_everything_that_an_attempt_left_can_be_read(worker: Worker, loaded: Loaded, tmp_path: Path) -> None:
    remote = make_remote(tmp_path)
    world = World(tmp_path, remote, worker.runtime, make_project(worker.runtime, remote))
    api = client_of(worker.runtime, loaded, worker)
    files = {"00-setup.md": "Get ready.\nwrite setup.txt ready", "01-a.md": "Make it.\nwrite a.txt made"}
    plan = encode_plan([{"filename": name, "content": text} for name, text in files.items()])
    body = {"protocol_name": "0001-change", "description": f"A change.\nPLAN={plan}"}
    protocol = ok(api.post(f"/projects/{world.project_id}/protocols", json=body))["id"]
    ok(api.post(f"/protocols/{protocol}/actions/start"))
    eventually(lambda: world.stands(protocol))
    shown = ok(api.get(f"/protocols/{protocol}"))
    assert shown["status"] == "completed", shown["reason"]
    _, step = ok(api.get(f"/protocols/{protocol}/steps"))
    [attempt] = ok(api.get(f"/steps/{step['id']}"))["attempts"]["items"]
    links = attempt["links"]
    assert (attempt["outcome"], attempt["verdict"]["outcome"]) == ("passed", "passed")
    assert "Make it." in api.get(links["prompt"]).text
    assert "+made" in api.get(links["diff"]).text
    assert {"author", "reviewer"} <= links["transcripts"].keys()
    assert links["reports"]
    log = ok(api.get(links["log"]))
    assert ("done with 01-a" in log["chunk"], log["ended"]) == (True, True)
    assert attempt["usage"]["wall_ms"] > 0
    assert api.get(f"/steps/{step['id']}/actions/run").status_code == 405
    assert api.post(f"/steps/{step['id']}/actions/run").status_code == 409
