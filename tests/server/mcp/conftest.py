"""A ledger with something of everything in it, and real MCP clients on the face of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fastapi.testclient import TestClient
from mcp import Client
from mcp.types import CallToolResult

from ratchet.agentkit import StateStore
from ratchet.agents.contract import place_of
from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import create_run, get_step, open_attempt
from ratchet.loop import CHANGE_FILE
from ratchet.runtime import open_ledger, open_runtime
from ratchet.server.mcp.server import McpSide, operator_side
from tests.agents.made_up import NAME, make_two_versions
from tests.cli.workflow_files import counting
from tests.research.views.made_up import make_baseline, make_run, try_out
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.server.conftest import client_of
from tests.server.protocol_things import new_project, new_protocol, new_step, ok
from tests.server.test_tools import define

T = TypeVar("T")
PROJECT_TOKEN = "token-of-the-guarded-project"
LONG_TEXT = "".join(f"line {number}: ä€𝄞\n" for number in range(6000))


class World:
    """A project that anybody may see and one with a token of its own, and one of every other thing."""

    def __init__(self, home: Path, template: Path) -> None:
        shutil.copy(template, home / "ledger.db")
        self.home = home
        self.url = f"sqlite:///{home}/ledger.db"
        self.loaded: Loaded = load(home, self.url)
        self.ledger: Ledger = open_ledger(self.loaded)
        self.runtime = open_runtime(self.loaded, self.ledger, make_kinds())
        self._sides: dict[tuple[tuple[str, Any], ...], McpSide] = {}
        self.api: TestClient = client_of(self.runtime, self.loaded)
        self.open, self.guarded = self._project("open"), self._project("guarded")
        ok(self.api.put(f"/projects/{self.guarded['project']}/secrets", json={"api_token": PROJECT_TOKEN}))
        self.research = make_run(self.ledger)
        make_baseline(self.ledger, self.research)
        try_out(self.ledger, self.research, "keep", 1.1, "an idea that helps", expected_delta="0.2")
        agent = make_two_versions(self.ledger, home)
        StateStore(place_of(home, NAME).version(str(agent.current))).begin({"greetings": 1}, by="architect")
        define(self.loaded)
        assert self.api.post("/workflows", json={"spec": counting()}).status_code == 201
        assert self.api.post("/workflows/counting/runs", json={"inputs": {"text": "a b"}}).status_code == 202
        self.workflow_run = self.api.get("/workflows/runs").json()["items"][0]["run_id"]

    def _project(self, name: str) -> dict[str, Any]:
        project = new_project(self.api, name)
        protocol = new_protocol(self.api, project)
        step = new_step(self.api, protocol)
        with self.ledger.write() as tx:
            attempt = open_attempt(tx, get_step(tx, step))
            kept = self.ledger.artifacts.put(
                tx, f"{name}: {LONG_TEXT}".encode(), name=CHANGE_FILE, run_id=protocol, attempt_id=attempt
            )
            tx.event("session.message", run_id=protocol, attempt_id=attempt, message=f"secret of {name}")
        return {
            "project": project,
            "protocol": protocol,
            "step": step,
            "attempt": attempt,
            "artifact": kept.sha256,
        }

    def close(self) -> None:
        self.api.close()
        self.ledger.close()

    @property
    def last_event(self) -> int:
        with self.ledger.read() as tx:
            return last_id(tx.connection)

    def run(self, name: str, **more: Any) -> int:
        with self.ledger.write() as tx:
            return create_run(tx, "research", name, **more)

    def use(self, task: Callable[[Client], Awaitable[T]], **how: Any) -> T:
        """What `task` comes to with a client of the face, which is made as `ratchet mcp` makes it."""
        key = tuple(sorted(how.items()))
        # Its schemas take a second to make.
        if key not in self._sides:
            self._sides[key] = operator_side(self.runtime, self.loaded, **how)

        async def connected() -> T:
            async with Client(self._sides[key].server) as client:
                return await task(client)

        return asyncio.run(connected())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"), sqlite_template)
    yield made
    made.close()


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def told(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def fitting_arguments(world: World, tool: str, needed: list[str]) -> dict[str, Any]:
    """Right arguments for a reading tool that needs these."""
    known = {
        "project_id": world.open["project"],
        "protocol_id": world.open["protocol"],
        "step_id": world.open["step"],
        "attempt_id": world.open["attempt"],
        "sha256": world.open["artifact"],
        "run_id": world.workflow_run if tool == "get_workflow_run" else world.open["protocol"],
        "run": str(world.research),
        "exp": "1",
        "name": NAME if "agent" in tool else "counting",
        "tool": "list_runs" if tool == "read_part" else "double",
        "q": "double a number",
        "version": "latest",
        "spec": counting(),
    }
    given = {name: known[name] for name in needed}
    return {**given, "seconds": 0} if tool == "wait_for_run" else given
