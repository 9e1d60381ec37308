"""A server that is killed while it is asked: nothing is lost that it answered, and nothing is done twice."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger.projects import change_project
from ratchet.projects.secrets import put_secrets
from ratchet.runtime import Runtime, list_jobs
from tests.forges.github_stand_in import GitHubStandIn
from tests.protocols.world import World, encode_plan, make_project, make_remote, write_agents
from tests.runtime.worker_process import load
from tests.server.conftest import Server, Start
from tests.waiting import eventually

# Much more than it takes: a busy machine may need minutes for what a quiet one does in seconds.
_PATIENCE_SECONDS = 300
SECRET = "the secret of the webhooks"
NAMES = [f"{number:04d}-change" for number in range(1, 4)]
# The server dies while these are under way: what is asked for, and which of its kind it is.
DEADLY = {("create", 2), ("start", 2), ("run", 3), ("webhook", 4)}
PLAN = encode_plan(
    [
        {"filename": "00-setup.md", "content": "Get ready.\nwrite setup.txt ready", "qa": "skip"},
        {"filename": "01-a.md", "content": "Write a.\nwrite a.txt one"},
    ]
)


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    write_agents(tmp_path)
    return load(tmp_path, url)


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with GitHubStandIn() as started:
        yield started


@pytest.fixture
def world(tmp_path: Path, runtime: Runtime) -> World:
    remote = make_remote(tmp_path)
    project_id = make_project(runtime, remote, required_checks=["test"])
    with runtime.ledger.write(actor="test") as tx:
        put_secrets(tx, runtime, project_id, {"webhook_secret": SECRET, "forge_token": GitHubStandIn.token})
        change_project(tx, project_id, remote="github.com/acme/demo", ci_provider="github")
    return World(tmp_path, remote, runtime, project_id)


class MortalServer:
    """One server after the other. Whoever is cut off asks again, as people and forges do."""

    def __init__(self, start: Start, *settings: str) -> None:
        self._start = lambda: start(*settings)
        self._chance = random.Random()
        self._server: Server = self._started()
        # One death at a time: the next server is there before it can be killed.
        self._dying = threading.Lock()
        self._counting = threading.Lock()
        # Nobody asks at the address of a dead one: its port may be somebody else's by then.
        self._alive = threading.Event()
        self._alive.set()
        self.asked: Counter[str] = Counter()
        self.deaths = 0

    def post(self, kind: str, path: str, **more: Any) -> httpx.Response:
        """The answer, 200 or 409: what is not answered is asked for again, and may have been done already."""
        with self._counting:
            self.asked[kind] += 1
            is_deadly = (kind, self.asked[kind]) in DEADLY
        if is_deadly:
            dying = threading.Thread(target=self._die)
            dying.start()
        answer, tries = self._asked("POST", path, **more)
        assert answer.status_code == 200 or (answer.status_code == 409 and tries > 1), answer.text
        if is_deadly:
            dying.join()
        return answer

    def get(self, path: str) -> Any:
        answer, _ = self._asked("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def words(self) -> str:
        """What the living one has said."""
        return self._server.words

    def _asked(self, method: str, path: str, **more: Any) -> tuple[httpx.Response, int]:
        """The answer, and how often it was asked for."""
        tried: list[httpx.Response | None] = []

        def ask() -> bool:
            self._alive.wait(_PATIENCE_SECONDS)
            try:
                tried.append(self._server.client.request(method, path, **more))
            except httpx.TransportError:
                tried.append(None)
            return tried[-1] is not None

        # The next server may be long in coming.
        eventually(ask)
        assert tried[-1] is not None
        return tried[-1], len(tried)

    def _die(self) -> None:
        with self._dying:
            # Anywhere between being asked and having answered.
            threading.Event().wait(self._chance.uniform(0, 0.03))
            self._alive.clear()
            self._server.process.kill()
            self._server.process.wait()
            self.deaths += 1
            self._server = self._started()
            self._alive.set()

    def _started(self) -> Server:
        server = self._start()
        # Its client is made when it is wanted first, and here many threads want it at once.
        assert server.client.get("/health/live").status_code == 200
        return server


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_killed_server_loses_nothing_that_it_answered_and_does_nothing_twice(
    world: World, github: GitHubStandIn, start_server: Start, url: str
) -> None:
    server = MortalServer(start_server, url, f"protocols.github_url={github.url}")

    def live(name: str) -> int:
        run_id = create(server, world, name)
        server.post("start", f"/protocols/{run_id}/actions/start")
        # A start that was done but not answered is asked for again, and then means: carry out the plan.
        await_status(server, world, run_id, "planned", "running")
        for step in server.get(f"/protocols/{run_id}/steps"):
            carry_out(server, github, name, step["id"])
        await_status(server, world, run_id, "completed")
        return run_id

    with ThreadPoolExecutor(len(NAMES)) as pool:
        runs = list(pool.map(live, NAMES))

    assert server.deaths == len(DEADLY)
    assert sorted(each["protocol_name"] for each in server.get("/protocols")) == NAMES
    once = ("run.created", "planning_enqueued", "planned", "open_pr", "protocol_completed")
    twice = ("step_enqueued", "step_completed", "check_run")
    for run_id in runs:
        told = Counter(world.events(run_id))
        assert {event: told[event] for event in once} == dict.fromkeys(once, 1)
        assert {event: told[event] for event in twice} == dict.fromkeys(twice, 2)
        assert world.protocol(run_id).status is RunStatus.COMPLETED
    assert sorted(pull["head"]["ref"] for pull in github.pulls.values()) == NAMES
    for name in NAMES:
        assert len(world.git("rev-list", f"main..{name}").splitlines()) == 3
    world.git("fsck", "--strict")


def create(server: MortalServer, world: World, name: str) -> int:
    body = {"protocol_name": name, "description": f"A change.\nPLAN={PLAN}", "automatic": False}
    answer = server.post("create", f"/projects/{world.project_id}/protocols", json=body)
    if answer.status_code == 200:
        run_id: int = answer.json()["id"]
        return run_id
    return next(each["id"] for each in server.get("/protocols") if each["protocol_name"] == name)


def carry_out(server: MortalServer, github: GitHubStandIn, name: str, step_id: int) -> None:
    """Run a step, and be its CI."""

    def look() -> dict[str, Any]:
        found: dict[str, Any] = server.get(f"/steps/{step_id}")
        return found

    server.post("run", f"/steps/{step_id}/actions/run")
    eventually(lambda: look()["awaits_ci"])
    body = json.dumps(github.check_run(name, look()["commit"], "success", name="test")).encode()
    headers = github.headers("check_run", body, SECRET, delivery=f"{name}-{step_id}")
    assert server.post("webhook", "/webhooks/github", content=body, headers=headers).status_code == 200
    eventually(lambda: look()["status"] == "completed")


def await_status(server: MortalServer, world: World, run_id: int, *wanted: str) -> None:
    try:
        eventually(lambda: status(server, run_id) in wanted)
    except AssertionError as error:
        with world.ledger.read() as tx:
            jobs = list_jobs(tx, run_id=run_id)
        raise AssertionError(f"{world.events(run_id)}\n{jobs}\n{server.words}") from error


def status(server: MortalServer, run_id: int) -> str:
    found: str = server.get(f"/protocols/{run_id}")["status"]
    assert found not in ("blocked", "failed", "cancelled"), server.get(f"/protocols/{run_id}")["reason"]
    return found
