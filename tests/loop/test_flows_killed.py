"""Each of the four flows, killed behind each stage of the loop: the next worker resumes, and nothing is done twice."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratchet.agents.architect import AgentRequest as WantedAgent
from ratchet.agents.architect import create_agent
from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.agents import get_agent
from ratchet.ledger.agents import list_versions as list_agent_versions
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.ledger.usage import list_sessions
from ratchet.loop import ENDED, JUDGED, KEPT, OPENED, PROPOSED
from ratchet.research.start import ResearchRequest as WantedResearch
from ratchet.research.start import start_research
from ratchet.runtime import Runtime, open_ledger, open_runtime, start_run
from ratchet.workspaces import Repository
from tests.protocols.world import World, make_project, make_remote, write_agents
from tests.research.hill import write_hill
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import make_kinds
from tests.runtime.machines import AddMachine
from tests.runtime.worker_process import load
from tests.waiting import eventually
from tests.workflows.evolution.conftest import QUICK
from tests.workflows.evolution.lab import NAME, prepared, versions

STAGES = (OPENED, PROPOSED, JUDGED, KEPT, ENDED)
TRIALS = 4


@dataclass(frozen=True)
class Flow:
    """How a run is started, how many of its sessions make a candidate, and how often its trunk has moved. The task
    and the remote of the project lie in a place of their own."""

    start: Callable[[Runtime, Path], int]
    candidates: int
    moved: Callable[[Runtime, Path, int], None]


def start_agent(runtime: Runtime, _place: Path) -> int:
    return create_agent(runtime, WantedAgent(name="greeter", description="create hello"), actor="test")


def agent_moved(runtime: Runtime, _place: Path, run_id: int) -> None:
    with runtime.ledger.read() as tx:
        agent, run = get_agent(tx, "greeter"), get_run(tx, run_id)
        assert [each.commit for each in list_agent_versions(tx, agent.id)] == [agent.current]
    assert run.result["commit"] == agent.current


def start_hill(runtime: Runtime, place: Path) -> int:
    task = write_hill(place / "hill")
    return start_research(runtime, WantedResearch(task=str(task), engine="search", trials=TRIALS, parallel=1))


def best_moved(runtime: Runtime, _place: Path, run_id: int) -> None:
    with runtime.ledger.read() as tx:
        standing, rows = get_standing(tx, run_id), latest_trials(tx, run_id, limit=100)
        assert in_flight(tx, run_id) == []
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    repository = Repository.open(runtime.home / "research" / str(run_id) / "repo.git")
    assert repository.ref("refs/heads/best") == standing.best_commit
    repository.close()


def start_evolution(runtime: Runtime, _place: Path) -> int:
    prepared(runtime.ledger)
    spec = {"tool": NAME, "engine": "rewriter:direct"}
    with runtime.ledger.write() as tx:
        return start_run(tx, runtime, "evolve_mortally", kind="workflow", name=f"evolve:{NAME}", spec=spec)


def tool_moved(runtime: Runtime, _place: Path, run_id: int) -> None:
    first, second = versions(runtime.ledger)
    assert (second.parent_id, second.run_id) == (first.id, run_id)


def start_protocol(runtime: Runtime, place: Path) -> int:
    remote = make_remote(place)
    world = World(runtime.home, remote, runtime, make_project(runtime, remote))
    world.plan("Write a.\nwrite a.txt one")
    return world.start()


def branch_moved(_runtime: Runtime, place: Path, _run_id: int) -> None:
    remote = Repository.open(place / "remote.git")
    # The plan, the setup and the change, once each.
    made = remote.log("refs/heads/0001-change", limit=10)
    assert len(made) == len(remote.log("refs/heads/main", limit=10)) + 3
    remote.close()


FLOWS = {
    "agents": Flow(start_agent, 1, agent_moved),
    "research": Flow(start_hill, TRIALS, best_moved),
    "workflows": Flow(start_evolution, 1, tool_moved),
    "protocols": Flow(start_protocol, 2, branch_moved),
}
# One stage of each flow shows it in the gate.
CASES = [
    pytest.param(flow, stage, marks=() if stage == JUDGED else pytest.mark.soak)
    for flow in FLOWS
    for stage in STAGES
]

# Research has a short test of its own in the gate.
MOVED = [
    pytest.param(flow, stage, marks=pytest.mark.soak if stage != JUDGED or flow == "research" else ())
    for flow in FLOWS
    for stage in STAGES
]


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    write_agents(tmp_path)
    return load(tmp_path, url, **QUICK)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("name", "stage"), CASES)
def test_a_flow_killed_behind_any_stage_resumes_there_and_does_nothing_twice(
    name: str, stage: str, runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    flow, home = FLOWS[name], runtime.home
    die_at(home, f"loop:{stage}")
    add_worker(fleet)
    run_id = flow.start(runtime, home)
    eventually(lambda: not (home / "death").exists())
    add_worker(fleet)
    eventually(lambda: status(ledger, run_id).final)
    assert status(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        authors = [each for each in list_sessions(tx, run_id=run_id) if each.role == "author"]
        attempts = [each for step in list_steps(tx, run_id) for each in list_attempts(tx, step.id)]
    # No session is paid for twice, and each belongs to an attempt of its own, which has ended.
    assert len({each.attempt_id for each in authors}) == len(authors) == flow.candidates
    assert all(each.ended_at is not None for each in attempts)
    passed = Counter(places_passed(home))
    # What was recorded is not made again: the session, and the verdict.
    assert (passed[f"loop:{PROPOSED}"], passed[f"loop:{JUDGED}"]) == (flow.candidates, flow.candidates)
    assert passed[f"loop:{OPENED}"] == flow.candidates + (stage == OPENED)
    flow.moved(runtime, home, run_id)


@pytest.mark.parametrize(("name", "stage"), MOVED)
def test_a_flow_continues_on_a_machine_that_shares_the_database_and_the_store_alone(
    name: str, stage: str, add_machine: AddMachine, tmp_path: Path
) -> None:
    flow = FLOWS[name]
    first, second = add_machine("first"), add_machine("second")
    for each in (first, second):
        write_agents(each.home)
        each.set(**QUICK)
    with open_ledger(first.loaded) as ledger:
        run_id = flow.start(open_runtime(first.loaded, ledger, make_kinds()), tmp_path)
    first.work_until(stage)
    shutil.rmtree(first.home)
    second.work()
    with open_ledger(second.loaded) as ledger:
        eventually(lambda: status(ledger, run_id).final)
        with ledger.read() as tx:
            run = get_run(tx, run_id)
            authors = [each for each in list_sessions(tx, run_id=run_id) if each.role == "author"]
        assert run.status is RunStatus.COMPLETED, run.reason
        assert len({each.attempt_id for each in authors}) == len(authors) == flow.candidates
        flow.moved(open_runtime(second.loaded, ledger), tmp_path, run_id)


def add_worker(fleet: Fleet) -> None:
    fleet.add(**{key.replace(".", "__"): value for key, value in QUICK.items()})


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status
