"""What one planning works with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from ratchet.asking import Asker, Room
from ratchet.config.protocol_settings import Protocols
from ratchet.engines import Engine
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.projects.clone import Clone
from ratchet.runtime import JobContext
from ratchet.workspaces import Repository

OpenEngine = Callable[[str | None], Engine]
"""Opens an engine by its name; nothing is the usual one."""
Passed = Callable[[str], None]
"""Is told how far it has come."""

PLAN_STEP = "plan"


@dataclass(frozen=True, slots=True)
class Work:
    """One protocol that is to be planned."""

    job: JobContext
    protocol: Protocol
    project: Project
    clone: Clone
    open_engine: OpenEngine
    passed: Passed

    @property
    def settings(self) -> Protocols:
        return self.job.runtime.settings.protocols

    @property
    def repository(self) -> Repository:
        return self.clone.repository

    @property
    def folder(self) -> str:
        return f".protocols/{self.protocol.name}"

    def model(self, stage: str) -> str | None:
        """The model for `planning` or `decompose`: the project's, then that of the settings, then the engine's own."""
        own = self.project.default_models.get(stage)
        chosen = own if isinstance(own, str) and own else getattr(self.settings.models, stage)
        return None if chosen is None else str(chosen)

    def asker(self, stage: str, engine: Engine, commit: str) -> Asker:
        """Whoever is asked sits in a checkout of `commit`, and what it changes there is thrown away."""
        return Asker(
            self.job,
            engine,
            self.settings.repairs,
            model=self.model(stage),
            deadline_seconds=self.settings.session_seconds,
            room=lambda: self._room(commit),
            passed=self.passed,
        )

    @contextlib.asynccontextmanager
    async def _room(self, commit: str) -> AsyncIterator[Room]:
        workspace = await asyncio.to_thread(self.repository.workspace, commit, name="plan")
        try:
            yield Room(workspace.path, workspace.environment, tuple(workspace.readable))
        finally:
            await asyncio.to_thread(workspace.discard)
