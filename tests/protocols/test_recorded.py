"""Protocols from recordings: the whole way once live, with every session kept, then again without any agent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import RunStatus, StepStatus
from ratchet.runtime import Worker, open_ledger, open_runtime
from ratchet.server.app import create_app
from tests.forges.github_stand_in import GitHubStandIn
from tests.protocols.recorder import announce, cassette
from tests.protocols.test_through_ci import TOKEN, awaited, onboard, report
from tests.protocols.world import World, encode_plan, write_agents
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually

AGENTS = ("planner", "author", "reviewer")
PLAN = encode_plan(
    [
        {"filename": "00-setup.md", "content": "Get ready.\nwrite setup.txt ready", "qa": "light"},
        {"filename": "01-a.md", "content": "Write a.\nwrite a.txt bad\nfix a.txt good"},
    ]
)


@dataclass(frozen=True)
class Stage:
    """One machine: a home with a worker, the API, a forge, and a project that is set up."""

    world: World
    client: TestClient
    github: GitHubStandIn

    def start(self, **more: Any) -> int:
        made = self.client.post(
            f"/projects/{self.world.project_id}/protocols",
            json={"protocol_name": "0001-change", "description": f"A change.\nPLAN={PLAN}", **more},
        )
        assert made.status_code == 200, made.text
        run_id: int = made.json()["id"]
        assert self.client.post(f"/protocols/{run_id}/actions/start").status_code == 200
        return run_id

    def carry_through(self, run_id: int) -> None:
        """Be its CI, which refuses the second step once, until it stands."""
        report(self.client, self.github, awaited(self.world, run_id, 0), lint="success", test="success")
        first = awaited(self.world, run_id, 1)
        report(self.client, self.github, first, lint="failure", test="success")
        eventually(lambda: self.world.stands(run_id) or self.world.steps(run_id)[1].commit != first)
        report(self.client, self.github, awaited(self.world, run_id, 1), lint="success", test="success")
        self.await_standing(run_id)

    def await_standing(self, run_id: int) -> None:
        eventually(lambda: self.world.stands(run_id))


@contextmanager
def staged(home: Path, template: Path, engines: dict[str, str]) -> Iterator[Stage]:
    """Where each agent is played by the engine that is named."""
    home.mkdir()
    shutil.copy(template, home / "ledger.db")
    write_agents(home)
    named = {"planner": "protocols.planner", "author": "protocols.engine", "reviewer": "protocols.reviewer"}
    with GitHubStandIn() as github:
        flags = {named[agent]: engine for agent, engine in engines.items()}
        loaded = load(home, f"sqlite:///{home}/ledger.db", **flags, **{"protocols.github_url": github.url})
        with open_ledger(loaded) as ledger:
            runtime = open_runtime(loaded, ledger, make_kinds())
            worker = Worker(runtime)
            worker.start()
            try:
                app = create_app(runtime, loaded, TOKEN, process_id=worker.process_id)
                client = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"})
                yield Stage(onboard(home, runtime, client), client, github)
            finally:
                worker.stop(drain_seconds=0)


@pytest.fixture(scope="module")
def cassettes(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[dict[str, Path]]:
    """What each agent did in a live run that was completed."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "site").mkdir()
    announce(root / "site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "site"))
        live = {agent: f"recorder:{agent}" for agent in AGENTS}
        with staged(root / "live", sqlite_template, live) as stage:
            run_id = stage.start()
            stage.carry_through(run_id)
            lived = stage.world.protocol(run_id)
            assert (lived.status, lived.used_recording) == (RunStatus.COMPLETED, False)
        yield {agent: cassette(root / "live", agent) for agent in AGENTS}


@pytest.mark.soak
def test_a_recorded_protocol_goes_all_the_way_again_and_is_marked_everywhere(
    cassettes: dict[str, Path], tmp_path: Path, sqlite_template: Path
) -> None:
    tapes = {agent: f"replay:{path}" for agent, path in cassettes.items()}
    with staged(tmp_path / "again", sqlite_template, tapes) as stage:
        world, client = stage.world, stage.client
        run_id = stage.start(simulated=True)
        stage.carry_through(run_id)
        assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
        assert world.git("show", "0001-change:a.txt") == "good"
        told = world.events(run_id)
        for event in (
            "planned",
            "qa_failed",
            "step_fix",
            "pushed",
            "open_pr",
            "ci_failed",
            "protocol_completed",
        ):
            assert event in told

        for address in (f"/protocols/{run_id}", f"/runs/{run_id}"):
            shown = client.get(address).json()
            assert (shown["simulated"], shown["used_recording"]) == (True, True), address
        [listed] = client.get("/protocols").json()
        assert listed["simulated"]
        found = client.get(f"/protocols/{run_id}/events", params={"limit": 500}).json()
        held = [each["data"] for each in found if each["type"] == "session.ended"]
        assert len(held) == 9
        assert all(data["simulated"] for data in held)
        [pull] = stage.github.pulls.values()
        assert "simulation" in pull["body"]
        for step in world.steps(run_id):
            for attempt in client.get(f"/steps/{step.step_id}").json()["attempts"]["items"]:
                assert attempt["simulated"]
                assert attempt["verdict"]["simulated"]
                assert all(session["simulated"] for session in attempt["sessions"])


@pytest.mark.soak
@pytest.mark.parametrize("agent", AGENTS)
def test_a_recording_completes_nothing_in_a_run_that_is_no_simulation(
    agent: str, cassettes: dict[str, Path], tmp_path: Path, sqlite_template: Path
) -> None:
    with staged(tmp_path / agent, sqlite_template, {agent: f"player:{cassettes[agent]}"}) as stage:
        world = stage.world
        run_id = stage.start()
        stage.await_standing(run_id)
        protocol = world.protocol(run_id)
        assert protocol.status is RunStatus.BLOCKED
        assert protocol.used_recording
        assert "recording" in (protocol.reason or "")
        # Nothing of it was kept: the remote has the plan at most.
        assert [each.commit for each in world.steps(run_id) if each.commit] == []
        assert "(change)" not in world.git("log", "--format=%s", "--branches")


@pytest.mark.soak
def test_what_people_approve_completes_no_run_that_rests_on_a_recording(
    cassettes: dict[str, Path], tmp_path: Path, sqlite_template: Path
) -> None:
    reviewer = {"reviewer": f"player:{cassettes['reviewer']}"}
    with staged(tmp_path / "approved", sqlite_template, reviewer) as stage:
        run_id = stage.start()
        for index in (0, 1):
            stage.await_standing(run_id)
            step = stage.world.steps(run_id)[index]
            assert step.status is StepStatus.FAILED
            assert stage.client.post(f"/steps/{step.step_id}/actions/approve").status_code == 200
        stage.await_standing(run_id)
        assert {each.status for each in stage.world.steps(run_id)} == {StepStatus.COMPLETED}
        assert stage.world.protocol(run_id).status is RunStatus.BLOCKED
        assert "rests on a recording" in (stage.world.protocol(run_id).reason or "")
        assert [pull["draft"] for pull in stage.github.pulls.values()] == [True]
