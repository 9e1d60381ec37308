from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ratchet.agents.architect import AgentRequest, create_agent
from ratchet.config import load_settings
from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter, Ledger, change_run
from ratchet.ledger.agents import get_agent
from ratchet.ledger.events import latest
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run, create_steps, get_run, get_step, open_attempt
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.runtime import Runtime, open_runtime, start_run
from ratchet.server.app import create_app
from tests.cli.conftest import Ratchet

Act = Callable[[str, int], object]


def begin(runtime: Runtime, name: str = "primes", kind: str = "workflow") -> int:
    with runtime.ledger.write() as tx:
        return start_run(tx, runtime, "demo.primes", kind=kind, name=name, spec={"size": 3})


def test_no_runs_say_what_to_do_next(ratchet: Ratchet, runtime: Runtime) -> None:
    done = ratchet("runs", "list")
    assert (done.code, done.out) == (0, "")
    assert "ratchet demo" in done.err
    assert ratchet("runs", "list", "--json").json == []


def test_runs_are_listed_newest_first_and_chosen(ratchet: Ratchet, runtime: Runtime) -> None:
    first, second, third = begin(runtime), begin(runtime, kind="research"), begin(runtime)

    def found(*options: str) -> list[int]:
        return [each["id"] for each in ratchet("runs", "list", "--json", *options).json]

    assert found() == [third, second, first]
    assert found("--kind", "research") == [second]
    assert found("--status", "running") == []
    assert found("--limit", "1", "--before", str(third)) == [second]
    assert ratchet("runs", "list", "--status", "lost").code == 2
    header, *rows = ratchet("runs", "list").out.splitlines()
    assert header.split()[:4] == ["run", "kind", "name", "status"]
    assert len(rows) == 3


def test_a_run_is_shown_with_its_steps_and_attempts(ratchet: Ratchet, runtime: Runtime) -> None:
    run_id = begin(runtime)
    with runtime.ledger.write() as tx:
        [step_id, _] = create_steps(tx, run_id, [("first", {}), ("second", {})])
        open_attempt(tx, get_step(tx, step_id), process_id="me")
    run = ratchet("runs", "show", str(run_id), "--json").json
    assert (run["status"], run["spec"]) == ("pending", {"size": 3})
    assert [step["name"] for step in run["steps"]] == ["first", "second"]
    assert [attempt["process_id"] for attempt in run["steps"][0]["attempts"]] == ["me"]
    assert run["usage"]["input_tokens"] == 0
    shown = ratchet("runs", "show", str(run_id)).out
    assert "second" in shown
    assert '{"size": 3}' in shown


def test_a_run_that_used_a_recording_is_marked_wherever_it_is_shown(
    ratchet: Ratchet, runtime: Runtime
) -> None:
    with runtime.ledger.write() as tx:
        run_id = create_run(tx, "workflow", "replayed", simulated=True)
        [step_id] = create_steps(tx, run_id, [("only", {})])
        open_attempt(tx, get_step(tx, step_id), simulated=True)
    assert "used a recording" in ratchet("runs", "list").out
    assert "used a recording" in ratchet("runs", "show", str(run_id)).out
    assert ratchet("runs", "show", str(run_id), "--json").json["used_recording"] is True


def test_a_run_that_does_not_exist_is_a_failure(ratchet: Ratchet, runtime: Runtime) -> None:
    for verb in ("show", "cancel", "pause", "resume"):
        assert (
            ratchet("runs", verb, "77").err
            == "error: run 77 does not exist\nhint: `ratchet runs list` shows them\n"
        )


def test_a_run_is_paused_resumed_and_cancelled(ratchet: Ratchet, runtime: Runtime) -> None:
    run_id = str(begin(runtime))
    assert ratchet("runs", "pause", run_id, "--reason", "lunch", "--json").json["reason"] == "lunch"
    assert ratchet("runs", "resume", run_id, "--json").json["status"] == "running"
    done = ratchet("runs", "cancel", run_id)
    assert (done.code, done.out) == (0, f"Run {run_id} is cancelled.\n")
    late = ratchet("runs", "resume", run_id)
    assert late.code == 1
    assert "is cancelled" in late.err


@pytest.mark.parametrize(
    ("kind", "here"),
    [("workflow", ""), ("research", ", and `ratchet research resume 1` resumes it here and now")],
)
def test_a_resumed_run_that_no_worker_takes_says_so(
    ratchet: Ratchet, runtime: Runtime, kind: str, here: str
) -> None:
    run_id = str(begin(runtime, kind=kind))
    assert ratchet("runs", "pause", run_id).code == 0
    done = ratchet("runs", "resume", run_id)
    assert (done.code, done.out) == (0, f"Run {run_id} is resumed.\n")
    assert done.err == f"No worker runs on this ledger now: `ratchet worker` or `ratchet serve` does{here}.\n"


def test_a_completed_run_cannot_be_cancelled(ratchet: Ratchet, runtime: Runtime) -> None:
    run_id = begin(runtime)
    with runtime.ledger.write() as tx:
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.COMPLETED)
    done = ratchet("runs", "cancel", str(run_id))
    assert done.code == 1
    assert f"run {run_id} is completed" in done.err


@pytest.fixture
def installed(home: Path, database_url: str, ledger: Ledger) -> Runtime:
    """The runtime with the kinds of every flow."""
    return open_runtime(load_settings({"home": str(home), "database_url": database_url}, env={}), ledger)


@pytest.fixture(params=["cli", "api"])
def act(
    request: pytest.FixtureRequest, home: Path, database_url: str, ratchet: Ratchet, installed: Runtime
) -> Act:
    """Does something with a run by one of the faces."""
    loaded = load_settings({"home": str(home), "database_url": database_url}, env={})
    api = TestClient(create_app(installed, loaded, "token"), headers={"Authorization": "Bearer token"})

    def by_api(verb: str, run_id: int) -> object:
        answer = api.post(f"/runs/{run_id}/actions/{verb}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def by_cli(verb: str, run_id: int) -> object:
        done = ratchet("runs", verb, str(run_id), "--json")
        assert done.code == 0, done.err
        return done.json

    return by_api if request.param == "api" else by_cli


def test_a_protocol_paused_while_it_is_planned_goes_back_to_its_planning(
    act: Act, installed: Runtime
) -> None:
    with installed.ledger.write() as tx:
        project_id = add_project(tx, "shop", base_branch="main", facts={})
        run_id = create_protocol(tx, installed, project_id, "0001-login")
        start_protocol(tx, installed, run_id)
    act("pause", run_id)
    act("resume", run_id)
    with installed.ledger.read() as tx:
        assert get_run(tx, run_id).status is RunStatus.PLANNING
        told = {event.type for event in latest(tx.connection, where=EventFilter(run_id=run_id))}
    assert told >= {"paused", "resumed"}


def test_an_agent_whose_creation_is_cancelled_is_not_being_created_any_more(
    act: Act, installed: Runtime
) -> None:
    run_id = create_agent(
        installed, AgentRequest(name="greeter", description="Greets.", engine="codex"), actor="test"
    )
    act("cancel", run_id)
    with installed.ledger.read() as tx:
        agent = get_agent(tx, "greeter")
    assert (agent.status, agent.reason) == ("failed", "cancelled on request")
