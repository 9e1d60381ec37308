"""What one run of the Architect works with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ratchet.agents.place import Place
from ratchet.config.agent_settings import Agents
from ratchet.engines import Engine
from ratchet.engines.registry import Surroundings
from ratchet.ledger import Run
from ratchet.ledger.agents import Agent, AgentVersion
from ratchet.runtime import JobContext
from ratchet.workspaces import Repository

Opener = Callable[[str | None, Surroundings], Engine]
Tell = Callable[[JobContext, str], None]


@dataclass(frozen=True, slots=True)
class Work:
    """One change of one agent. `base` is the version that is changed; the first one has none."""

    job: JobContext
    run: Run
    agent: Agent
    base: AgentVersion | None
    place: Place
    repository: Repository
    engine: Engine
    message: str
    tell: Tell

    @property
    def settings(self) -> Agents:
        return self.job.runtime.settings.agents

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.run.spec)

    @property
    def parent(self) -> str | None:
        return None if self.base is None else self.base.commit

    @property
    def by(self) -> str:
        """How this change signs what it does to a state."""
        return f"architect, run {self.run.id}"

    def passed(self, stage: str) -> None:
        """Tell how far it has come."""
        self.tell(self.job, stage)


def announce(job: JobContext, stage: str) -> None:
    """An event for whoever watches."""
    with job.write() as tx:
        tx.event("agent.stage", message=stage, run_id=job.run_id)


def surroundings(job: JobContext) -> Surroundings:
    return Surroundings(job.runtime.settings, job.runtime.home, os.environ)
