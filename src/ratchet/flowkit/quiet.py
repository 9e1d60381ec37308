"""A journal that remembers nothing, for an execution that need not survive its process."""

from __future__ import annotations

from .execution import Call, Result, StepError
from .spec import WorkflowStep


class QuietJournal:
    def finished(self, name: str) -> Result | StepError | None:
        return None

    async def started(self, call: Call) -> None: ...

    async def retrying(self, call: Call, error: StepError, pause_seconds: float) -> None: ...

    async def completed(self, call: Call, result: Result) -> None: ...

    async def failed(self, call: Call, error: StepError) -> None: ...

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None: ...

    async def held(self, call: Call, reason: str) -> None: ...
