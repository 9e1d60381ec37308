"""A worker that is killed while it carries a protocol: the next one continues, and nothing is done twice."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from ratchet.config import Loaded
from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger.projects import change_project, get_project
from ratchet.ledger.runs import list_attempts
from ratchet.ledger.usage import list_sessions
from ratchet.projects.clone import open_clone
from ratchet.projects.secrets import put_secrets
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.stand_in import Asked, Said
from tests.protocols.gate import Gate, write_git
from tests.protocols.world import AUTHOR, REVIEWER, World, encode_plan, git, write_agents
from tests.runtime.fleet import Fleet, Nursery
from tests.runtime.worker_process import load
from tests.waiting import eventually

PENDING, RUNNING, NEEDS_QA, DONE = (
    StepStatus.PENDING,
    StepStatus.RUNNING,
    StepStatus.NEEDS_QA,
    StepStatus.COMPLETED,
)


class Death(NamedTuple):
    """Where the worker dies, at which time of coming by there, and how the two steps stand on record then."""

    place: str
    nth: int
    setup: StepStatus
    change: StepStatus


# In this order. Nobody reviews the setup, and the branch is made at the plan and moved to the setup before it is moved
# to the change.
DEATHS = [
    Death("pull request was opened", 1, PENDING, PENDING),
    Death("step was settled", 1, DONE, PENDING),
    Death("author is done", 2, DONE, RUNNING),
    Death("reviewer begins", 1, DONE, NEEDS_QA),
    Death("ref is to be moved", 3, DONE, NEEDS_QA),
    Death("ref was moved", 3, DONE, NEEDS_QA),
    Death("remote was pushed to", 3, DONE, NEEDS_QA),
    Death("pull request is ready", 1, DONE, DONE),
]


class MortalGitHub(GitHubStandIn):
    """Does what it is asked, and then comes by the gate before it answers."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def answer(self, asked: Asked) -> Said:
        said = super().answer(asked)
        if asked.method == "POST":
            self._gate.come_by(
                "pull request is ready" if asked.path == "/graphql" else "pull request was opened"
            )
        return said


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    opened = Gate()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def nursery(gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Its workers find a git that comes by the gate."""
    programs = tmp_path_factory.mktemp("programs")
    real = shutil.which("git")
    assert real is not None
    write_git(programs, gate, real)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        started = Nursery()
    yield started
    started.close()


@pytest.fixture
def github(gate: Gate) -> Iterator[GitHubStandIn]:
    with MortalGitHub(gate) as started:
        yield started


@pytest.fixture
def loaded(url: str, tmp_path: Path, gate: Gate) -> Loaded:
    come_by = gate.come_by_source
    write_agents(
        tmp_path,
        author=f"{AUTHOR}{come_by}come_by('author is done')\n",
        reviewer=f"{come_by}come_by('reviewer begins')\n{REVIEWER}",
    )
    return load(tmp_path, url)


def test_a_protocol_goes_on_wherever_its_worker_was_killed_and_does_nothing_twice(scene: Scene) -> None:
    run_id = scene.start()
    for death in DEATHS:
        scene.kill(run_id, death)
    scene.finish(run_id)
    # What was not written down yet is asked once more, and nothing else: of two sessions of authors and one review.
    asked = Counter(scene.gate.passed)
    assert (asked["author is done"], asked["reviewer begins"]) == (3, 2)


@dataclass(frozen=True)
class Scene:
    """A protocol of two steps on a remote and a forge that are watched, and one worker after the other."""

    world: World
    fleet: Fleet
    gate: Gate
    github: GitHubStandIn
    updates: Path

    def start(self) -> int:
        files = [
            {"filename": "00-setup.md", "content": "Get ready.\nwrite setup.txt ready", "qa": "skip"},
            {"filename": "01-a.md", "content": "Write a.\nwrite a.txt one"},
        ]
        self.world.planned["next"] = encode_plan(files)
        self.gate.forget()
        return self.world.start()

    def kill(self, run_id: int, death: Death) -> None:
        """Have a worker that dies there, and has written down exactly what came before."""
        self.gate.die_at(death.place, death.nth)
        self._work()
        eventually(lambda: self.gate.has_killed or self.world.stands(run_id))
        assert self.gate.has_killed, (self.gate.passed, self.world.protocol(run_id).reason)
        stands = self.world.statuses(run_id)
        assert stands == {"00-setup": death.setup, "01-a": death.change}, self.world.events(run_id)

    def finish(self, run_id: int) -> None:
        """Have a worker that lives; everything was done, and nothing twice."""
        self._work()
        world = self.world
        eventually(lambda: world.stands(run_id))
        assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
        with world.ledger.read() as tx:
            roles = sorted(each.role for each in list_sessions(tx, run_id=run_id))
            tries = [list_attempts(tx, step.step_id) for step in world.steps(run_id)]
            project = get_project(tx, world.project_id)
        assert roles == ["author", "author", "planner", "reviewer"]
        assert [[each.outcome for each in made].count(Outcome.PASSED) for made in tries] == [1, 1]
        assert [pull["draft"] for pull in self.github.pulls.values()] == [False]
        assert each_once(self.updates) == world.git("rev-list", "--reverse", "main..0001-change").splitlines()
        told = world.events(run_id)
        once = ("planned", "open_pr", "qa_passed", "qa_skipped_policy", "pull_request_ready", "run.completed")
        assert {event: told.count(event) for event in once} == dict.fromkeys(once, 1)
        assert told.count("pushed") == 3
        world.git("fsck", "--strict")
        with open_clone(world.runtime, project) as clone:
            git(clone.path, "fsck", "--strict", "--no-dangling")

    def _work(self) -> None:
        self.gate.worker = self.fleet.add(protocols__github_url=self.github.url)


@pytest.fixture
def scene(world: World, fleet: Fleet, gate: Gate, github: GitHubStandIn) -> Scene:
    know_forge(world)
    return Scene(world, fleet, gate, github, watch_remote(world, gate))


def watch_remote(world: World, gate: Gate) -> Path:
    """Let the remote write down every update, and then come by."""
    updates, visitor = world.home / "updates", world.home / "visitor.py"
    visitor.write_text(gate.come_by_source + 'come_by("remote was pushed to")\n')
    hook = world.remote / "hooks" / "post-receive"
    hook.write_text(f"#!/bin/sh\ncat >> {updates}\nexec python3 -I -S {visitor}\n")
    hook.chmod(0o755)
    return updates


def know_forge(world: World) -> None:
    with world.ledger.write(actor="test") as tx:
        put_secrets(tx, world.runtime, world.project_id, {"forge_token": GitHubStandIn.token})
        change_project(tx, world.project_id, remote="github.com/acme/demo", ci_provider="github")


def each_once(updates: Path) -> list[str]:
    """The commits that were pushed; each update continues from the last one."""
    last, pushed = "0" * 40, []
    for line in updates.read_text().splitlines():
        old, new, branch = line.split()
        assert (old, branch) == (last, "refs/heads/0001-change")
        last = new
        pushed.append(new)
    return pushed
