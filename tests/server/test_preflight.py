"""What cannot work is said by the request that asks for it, and nothing is begun."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.engines.engine import Failure
from ratchet.engines.preflight import NotReady, check_for_worker
from ratchet.kernel import RunId, RunStatus, StepStatus
from ratchet.ledger import Ledger, change_run, change_step
from ratchet.ledger.runs import list_runs
from ratchet.modelserver import ModelServer, Script
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime, pause_run
from tests.agents.made_up import NAME, make_agent
from tests.modelserver.fixtures import model_server
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.server.conftest import client_of
from tests.server.protocol_things import new_project, new_protocol, new_step

__all__ = ["model_server"]
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
_numbers = itertools.count(1)
ASK = {
    "workflow_id": "ask",
    "steps": [{"step_id": "tide", "type": "llm_call", "prompt_template": "Tell about tides."}],
}
Begin = Callable[[TestClient], Any]


@pytest.fixture
def script(tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A model behind another key than the one that the environment has."""
    name = f"preflight-{next(_numbers)}"
    _lead_to(tmp_path, model_server.openai_url(name))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    return model_server.script(name, [], key="sk-right", models=["gpt-5"])


def _lead_to(home: Path, url: str) -> None:
    (home / "ratchet.toml").write_text(
        f'[engines.codex]\nbase_url = "{url}"\nmodel = "gpt-5"\n'
        '[llm]\ndefault = "local/gpt-5"\n'
        f'[llm.endpoints.local]\nbase_url = "{url}"\nkey_variable = "OPENAI_API_KEY"\n'
    )


@pytest.fixture
def refused(script: Script, tmp_path: Path, url: str) -> Loaded:
    return load(tmp_path, url)


def start_protocol(api: TestClient) -> Any:
    protocol = new_protocol(api, new_project(api))
    return api.post(f"/protocols/{protocol}/actions/start")


def start_workflow(api: TestClient) -> Any:
    assert api.post("/workflows", json={"spec": ASK}).status_code == 201
    return api.post("/workflows/ask/runs", json={})


BEGINNINGS: dict[str, Begin] = {
    "research": lambda api: api.post(
        "/research", json={"task": "circle_packing", "engine": "codex", "trials": 1}
    ),
    "agent": lambda api: api.post("/agents", json={"name": "new", "description": "Greet."}),
    "feedback": lambda api: api.post(f"/agents/{NAME}/feedback", json={"message": "Be kind."}),
    "plan": lambda api: api.post("/workflows/plan", json={"sentence": "Tell about tides."}),
    "workflow": start_workflow,
    "protocol": start_protocol,
}


@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_key_that_is_refused_is_said_before_a_run_exists(
    refused: Loaded, script: Script, begin: Begin
) -> None:
    with open_ledger(refused) as ledger:
        make_agent(ledger, refused.home)
        answer = begin(client_of(open_runtime(refused, ledger, make_kinds()), refused))
        assert answer.status_code == 424, answer.text
        problem = answer.json()
        assert problem["type"] == "urn:ratchet:problem:not-ready"
        assert "the key is refused" in problem["detail"]
        assert "export OPENAI_API_KEY=" in problem["hint"]
        assert script.requests == []
        with ledger.read() as tx:
            assert [run for run in list_runs(tx) if str(run.status) != "pending"] == []


def with_steps(api: TestClient, ledger: Ledger, *, blocked: bool = False, paused: bool = False) -> int:
    protocol = new_protocol(api, new_project(api), automatic=True)
    step = new_step(api, protocol)
    with ledger.write(actor="test") as tx:
        for status in (StepStatus.RUNNING, StepStatus.BLOCKED) if blocked else ():
            change_step(tx, step, status)
        if paused:
            change_run(tx, RunId(protocol), RunStatus.PAUSED)
    return protocol


def paused_research(runtime: Runtime) -> int:
    run_id = start_research(runtime, ResearchRequest(task="circle_packing", engine="codex", trials=1))
    with runtime.ledger.write(actor="test") as tx:
        pause_run(tx, runtime, run_id)
    return run_id


def called_tool(api: TestClient) -> str:
    called = api.post("/tools/word_count/run", json={"inputs": {"text": "a b"}})
    assert called.json()["ok"], called.text
    return "word_count"


AGAIN: dict[str, Callable[[TestClient, Runtime], str]] = {
    "run-next": lambda api, runtime: f"/protocols/{with_steps(api, runtime.ledger)}/actions/run_next_step",
    "retry": lambda api, runtime: (
        f"/protocols/{with_steps(api, runtime.ledger, blocked=True)}/actions/retry_latest"
    ),
    "resume": lambda api, runtime: (
        f"/protocols/{with_steps(api, runtime.ledger, paused=True)}/actions/resume"
    ),
    "research": lambda _, runtime: f"/research/{paused_research(runtime)}/resume",
    "evolve": lambda api, _: f"/tools/{called_tool(api)}/evolve",
}


@pytest.mark.parametrize("prepare", AGAIN.values(), ids=AGAIN)
def test_a_key_that_is_refused_is_said_before_work_is_taken_up_again(
    refused: Loaded, script: Script, prepare: Callable[[TestClient, Runtime], str]
) -> None:
    with open_ledger(refused) as ledger:
        runtime = open_runtime(refused, ledger, make_kinds())
        api = client_of(runtime, refused)
        path = prepare(api, runtime)
        with ledger.read() as tx:
            before = [(run.id, run.status) for run in list_runs(tx)]
        answer = api.post(path)
        assert (answer.status_code, "the key is refused" in answer.text) == (424, True), answer.text
        with ledger.read() as tx:
            assert [(run.id, run.status) for run in list_runs(tx)] == before
        assert script.requests == []


def test_an_endpoint_that_hangs_leaves_it_to_the_worker(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _lead_to(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        loaded = load(tmp_path, url)
        with open_ledger(loaded) as ledger:
            answer = start_workflow(client_of(open_runtime(loaded, ledger, make_kinds()), loaded))
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


def test_a_look_that_takes_too_long_decides_nothing(runtime: Runtime) -> None:
    forever = threading.Event()

    def wait() -> None:
        forever.wait(60)

    check_for_worker(runtime, wait, seconds=0.01)
    forever.set()


def lacking() -> None:
    raise NotReady("no program", hint=None, failure=Failure.MISSING, is_local=True)


def refusing() -> None:
    raise NotReady("the key is refused", hint=None, failure=Failure.NO_ACCESS)


def test_what_is_not_here_may_be_where_the_work_is_done(runtime: Runtime) -> None:
    check_for_worker(runtime, lacking)
    with pytest.raises(NotReady):
        check_for_worker(runtime, refusing)


def test_what_is_not_here_is_said_where_this_process_works(worker: Worker) -> None:
    with pytest.raises(NotReady):
        check_for_worker(worker.runtime, lacking)
