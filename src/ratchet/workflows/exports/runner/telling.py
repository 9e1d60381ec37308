"""What a run came to, in the form in which Ratchet tells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratchet.flowkit.execution import Executed, QuietJournal, StepCall, StepError
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep

_SHOWN = {"held": "blocked"}


@dataclass
class Notes(QuietJournal):
    """Listens to a run for what its records do not keep: why steps were left out, and what to do about failures."""

    reasons: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)

    async def failed(self, call: StepCall, error: StepError) -> None:
        if error.hint:
            self.hints[call.name] = error.hint

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None:
        self.reasons[name] = reason


def told(spec: WorkflowSpec, ended: Executed, notes: Notes, *, recorded: bool) -> dict[str, Any]:
    """How a run ended, as JSON. One that used recorded answers says that it is simulated."""
    steps = {
        name: {
            "status": _SHOWN.get(record.status, record.status),
            "metrics": dict(record.metrics),
            "error": None if record.status == "skipped" else record.error,
            "reason": notes.reasons.get(name),
            "hint": notes.hints.get(name),
            "cached": record.cached,
            "tries": record.tries,
        }
        for name, record in ended.steps.items()
    }
    return {
        "workflow": spec.workflow_id,
        "status": _SHOWN.get(ended.status, ended.status),
        "simulated": recorded,
        "error": ended.error if ended.status == "failed" else None,
        "outputs": dict(ended.outputs),
        "steps": steps,
    }
