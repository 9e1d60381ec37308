"""A home with tools in it, a worker, and a model that plays a script."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Engine
from ratchet.ledger import EventFilter, Run
from ratchet.ledger.events import since
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import SessionRow, list_sessions
from ratchet.ledger.workflows import SavedWorkflow, list_workflows
from ratchet.modelserver import ModelServer, Script, Turn
from ratchet.runtime import JobContext, Kinds, Runtime, Worker, open_ledger, open_runtime
from ratchet.workflows.jobs import PLAN
from ratchet.workflows.overseer import Planned, plan, planned_of, start_plan
from tests.modelserver.fixtures import model_server
from tests.runtime.worker_process import load
from tests.waiting import eventually
from tests.workflows.overseer.plans import COUNTER, SENTENCE

__all__ = ["model_server"]
_numbers = itertools.count(1)


def write_home(home: Path, server: ModelServer, *turns: Turn, more: str = "") -> Script:
    """Settings that lead to a model with these turns. It has one try for each answer, so that every one counts."""
    name = f"overseer-{next(_numbers)}"
    script = server.script(name, list(turns))
    (home / "ratchet.toml").write_text(
        f'[llm]\ndefault = "local/scripted"\nretry_base_seconds = 0.01\nrepairs = 0\n'
        f'[llm.endpoints.local]\nbase_url = "{server.openai_url(name)}"\n{more}'
    )
    tools = home / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "tally_words.yaml").write_text(COUNTER)
    return script


@dataclass
class Desk:
    """Where sentences are given in and workflows come out."""

    home: Path
    url: str
    server: ModelServer
    script: Script | None = None
    opened: list[tuple[Runtime, Worker]] = field(default_factory=list)

    def open(self, *turns: Turn, more: str = "", engine: Engine | None = None, **flags: object) -> Script:
        """Be at work with these settings, as a process that was just started; an `engine` takes the model's place."""
        self.close()
        self.script = write_home(self.home, self.server, *turns, more=more)
        loaded = load(self.home, self.url, **flags)

        async def carry(job: JobContext) -> Any:
            return await plan(job) if engine is None else await plan(job, lambda *_: engine)

        kinds = Kinds()
        kinds.add(PLAN, carry)
        runtime = open_runtime(loaded, open_ledger(loaded), kinds)
        worker = Worker(runtime)
        worker.start()
        self.opened.append((runtime, worker))
        return self.script

    @property
    def runtime(self) -> Runtime:
        return self.opened[-1][0]

    def run(self, sentence: str = SENTENCE, **more: Any) -> Run:
        """The run for a sentence once it stops."""
        run_id = start_plan(self.runtime, sentence, actor="test", **more)
        eventually(lambda: self.look(run_id).status.stands)
        return self.look(run_id)

    def plan(self, sentence: str = SENTENCE, **more: Any) -> Planned:
        return planned_of(self.run(sentence, **more))

    def look(self, run_id: int) -> Run:
        with self.runtime.ledger.read() as tx:
            return get_run(tx, run_id)

    def saved(self) -> list[SavedWorkflow]:
        with self.runtime.ledger.read() as tx:
            return list_workflows(tx)

    def sessions(self, run_id: int) -> list[SessionRow]:
        with self.runtime.ledger.read() as tx:
            return list_sessions(tx, run_id=run_id)

    def events(self, run_id: int, type: str) -> list[Any]:
        with self.runtime.ledger.read() as tx:
            return [each.data for each in since(tx.connection, where=EventFilter(run_id=run_id, type=type))]

    def close(self) -> None:
        while self.opened:
            runtime, worker = self.opened.pop()
            worker.stop(drain_seconds=0)
            runtime.ledger.close()


@pytest.fixture
def desk(url: str, tmp_path: Path, model_server: ModelServer) -> Iterator[Desk]:
    opened = Desk(tmp_path, url, model_server)
    yield opened
    opened.close()
