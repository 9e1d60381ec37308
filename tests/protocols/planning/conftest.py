"""A project with a real remote, a worker that plans, and a model that plays a script."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Engine
from ratchet.kernel import RunStatus
from ratchet.ledger import Event, EventFilter, Transaction, change_run
from ratchet.ledger.events import since
from ratchet.ledger.projects import Project, change_project, get_project
from ratchet.ledger.protocols import Protocol, ProtocolStep, add_protocol, get_protocol, list_protocol_steps
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import SessionRow, list_sessions
from ratchet.modelserver import ModelServer, Script, Turn
from ratchet.projects.clone import open_clone
from ratchet.protocols.names import number_of
from ratchet.runtime import JobContext, Kinds, Runtime, Worker, open_ledger, open_runtime
from ratchet.runtime.job import run_key
from tests.modelserver.fixtures import model_server
from tests.protocols.planning.carrier import KIND, plan_mortally
from tests.protocols.planning.plans import DESCRIPTION
from tests.protocols.world import git, make_project, make_remote
from tests.runtime.worker_process import load
from tests.waiting import eventually

__all__ = ["model_server"]
NAME = "0001-greet"
_numbers = itertools.count(1)


def write_settings(home: Path, server: ModelServer, *turns: Turn, more: str = "") -> Script:
    """Settings that lead to a model with these turns. It has one try for each answer, so that every one counts."""
    name = f"planner-{next(_numbers)}"
    script = server.script(name, list(turns))
    (home / "ratchet.toml").write_text(
        '[protocols]\nplanner = "llm"\n'
        '[llm]\ndefault = "local/scripted"\nretry_base_seconds = 0.01\nrepairs = 0\n'
        f'[llm.endpoints.local]\nbase_url = "{server.openai_url(name)}"\n{more}'
    )
    return script


def start_planning(tx: Transaction, runtime: Runtime, project_id: int, name: str = NAME, **more: Any) -> int:
    """A protocol that is being planned by whoever takes its job."""
    simulated = more.pop("simulated", False)
    given = {"base_branch": "main", "description": DESCRIPTION, **more}
    run_id = create_run(tx, "protocol", name, project_id=project_id, simulated=simulated)
    add_protocol(tx, run_id, project_id, name, number=number_of(name), **given)
    plan_again(tx, runtime, run_id)
    return run_id


def plan_again(tx: Transaction, runtime: Runtime, run_id: int) -> None:
    """What starting a pending or blocked protocol does."""
    change_run(tx, run_id, RunStatus.PLANNING)
    runtime.enqueue(tx, KIND, run_id=run_id, key=run_key(run_id))


@dataclass
class Desk:
    """Where descriptions are given in and plans come out."""

    home: Path
    url: str
    server: ModelServer
    remote: Path
    project_id: int = 0
    opened: list[tuple[Runtime, Worker]] = field(default_factory=list)

    def open(self, *turns: Turn, more: str = "", engine: Engine | None = None, **flags: object) -> Script:
        """Be at work with these settings, as a process that was just started; an `engine` takes the model's place."""
        self.close()
        script = write_settings(self.home, self.server, *turns, more=more)
        loaded = load(self.home, self.url, **flags)

        async def carry(job: JobContext) -> Any:
            return await plan_mortally(job, engine)

        kinds = Kinds()
        kinds.add(KIND, carry)
        runtime = open_runtime(loaded, open_ledger(loaded), kinds)
        worker = Worker(runtime)
        worker.start()
        self.opened.append((runtime, worker))
        if not self.project_id:
            self.project_id = make_project(runtime, self.remote)
        return script

    @property
    def runtime(self) -> Runtime:
        return self.opened[-1][0]

    @property
    def project(self) -> Project:
        with self.runtime.ledger.read() as tx:
            return get_project(tx, self.project_id)

    def change_project(self, **values: Any) -> None:
        with self.runtime.ledger.write(actor="test") as tx:
            change_project(tx, self.project_id, **values)

    @property
    def clone(self) -> Path:
        """The clone of the project, made now if it is not there."""
        with open_clone(self.runtime, self.project) as clone:
            return clone.path

    def plan(self, name: str = NAME, **more: Any) -> Protocol:
        """The protocol once its planning has ended, well or not."""
        with self.runtime.ledger.write(actor="test") as tx:
            run_id = start_planning(tx, self.runtime, self.project_id, name, **more)
        return self.settled(run_id)

    def again(self, protocol: Protocol) -> Protocol:
        """Start a blocked protocol once more."""
        with self.runtime.ledger.write(actor="test") as tx:
            plan_again(tx, self.runtime, protocol.run_id)
        return self.settled(protocol.run_id)

    def settled(self, run_id: int) -> Protocol:
        eventually(lambda: self.look(run_id).status is not RunStatus.PLANNING)
        return self.look(run_id)

    def look(self, run_id: int) -> Protocol:
        with self.runtime.ledger.read() as tx:
            return get_protocol(tx, run_id)

    def steps(self, protocol: Protocol) -> list[ProtocolStep]:
        with self.runtime.ledger.read() as tx:
            return list_protocol_steps(tx, protocol.run_id)

    def sessions(self, protocol: Protocol) -> list[SessionRow]:
        with self.runtime.ledger.read() as tx:
            return list_sessions(tx, run_id=protocol.run_id)

    def events(self, protocol: Protocol, type: str) -> list[Event]:
        with self.runtime.ledger.read() as tx:
            return since(tx.connection, where=EventFilter(run_id=protocol.run_id, type=type))

    def git(self, *words: str) -> str:
        return git(self.clone, *words)

    def close(self) -> None:
        while self.opened:
            runtime, worker = self.opened.pop()
            worker.stop(drain_seconds=0)
            runtime.ledger.close()


@pytest.fixture
def desk(url: str, tmp_path: Path, model_server: ModelServer) -> Iterator[Desk]:
    made = Desk(tmp_path, url, model_server, make_remote(tmp_path))
    yield made
    made.close()
