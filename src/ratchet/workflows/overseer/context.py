"""What one run of the overseer works with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ratchet.config.workflow_settings import Workflows
from ratchet.engines import Engine
from ratchet.engines.registry import EngineContext
from ratchet.ledger import Run
from ratchet.memory import Memory
from ratchet.question import QuestionAsker
from ratchet.runtime import JobContext
from ratchet.tools.definition import Tool
from ratchet.tools.registry import Toolbox

Opener = Callable[[str | None, EngineContext], Engine]
Announce = Callable[[JobContext, str], None]


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """One plan. Without a memory, which may be out of reach, nothing is reused and nothing is remembered.

    `notes` gathers what did not work and does not matter for the plan.
    """

    job: JobContext
    run: Run
    engine: Engine
    toolbox: Toolbox
    memory: Memory | None
    tell: Announce
    notes: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Workflows:
        return self.job.runtime.settings.workflows

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.run.spec)

    @property
    def sentence(self) -> str:
        return str(self.run.spec["sentence"])

    def tools(self) -> dict[str, Tool]:
        """The tools that a plan may use, by their ids."""
        return {each.name: each.tool for each in self.toolbox.list() if each.tool.refusal is None}

    @property
    def asker(self) -> QuestionAsker:
        return QuestionAsker(
            self.job, self.engine, self.settings.repairs, model=self.spec.get("model"), passed=self.passed
        )

    def passed(self, stage: str) -> None:
        """Announce its progress."""
        self.tell(self.job, stage)


def announce(job: JobContext, stage: str) -> None:
    """An event for those who watch."""
    with job.write() as tx:
        tx.event("workflow.stage", message=stage, run_id=job.run_id)


def surroundings(job: JobContext) -> EngineContext:
    return EngineContext(job.runtime.settings, job.runtime.home, os.environ)
