"""A protocol in the hands of its carrier: everything that its parts need."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ratchet.engines.engine import Engine
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.projects.clone import Clone
from ratchet.runtime import JobContext


class Blocked(RatchetError):
    """The protocol cannot go on until somebody does what the message says."""

    http_status = 409

    def __init__(self, message: str, *, event: str = "blocked", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.event = event

    @property
    def told(self) -> str:
        return f"{self} ({self.hint})" if self.hint else str(self)


@dataclass(frozen=True, slots=True)
class Stream:
    """One protocol, its project and its clone, for one delivery of its job. The rows are as they were at its start."""

    job: JobContext
    protocol: Protocol
    project: Project
    clone: Clone

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(self.job.runtime.settings, self.job.runtime.home, os.environ)

    @property
    def root(self) -> str:
        """The folder of the protocol's own files on its branch."""
        return f".protocols/{self.protocol.name}"

    def open_engine(self, name: str | None) -> Engine:
        """Raises `Blocked` when there is no such engine."""
        try:
            return open_engine(name, self.surroundings)
        except RatchetError as error:
            raise Blocked(str(error), event="engine_missing", hint=error.hint) from error

    def event(
        self,
        tx: Transaction,
        type: str,
        message: str,
        *,
        step_id: int | None = None,
        attempt_id: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        tx.event(
            type,
            run_id=self.protocol.run_id,
            project_id=self.protocol.project_id,
            step_id=step_id,
            attempt_id=attempt_id,
            message=message,
            data={"spec_hash": self.protocol.spec_hash, **(data or {})},
        )
