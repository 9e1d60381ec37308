"""Steps of protocols as they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from ratchet.kernel import StepStatus
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.operations import described, record


@dataclass(frozen=True, slots=True)
class StepAnswer:
    id: int
    protocol_run_id: int
    step_index: int
    step_name: str = field(metadata={"examples": ["01-build"]})
    step_type: str
    status: StepStatus
    reason: str | None
    retries: int
    model: str | None
    engine_id: str | None
    policy: Any
    runtime_state: Any
    summary: str | None
    depends_on: list[str]
    commit: str | None = field(metadata=described("its newest commit on the branch"))
    awaits_ci: bool
    created_at: int
    updated_at: int
    ended_at: int | None

    @classmethod
    def of(cls, step: ProtocolStep) -> Self:
        return cls(
            id=step.step_id,
            protocol_run_id=step.run_id,
            step_name=step.name,
            depends_on=step.depends_on or [],
            **{name: getattr(step, name) for name in _SAME},
        )


_SAME = (
    "step_index",
    "step_type",
    "status",
    "reason",
    "retries",
    "model",
    "engine_id",
    "policy",
    "runtime_state",
    "summary",
    "commit",
    "awaits_ci",
    "created_at",
    "updated_at",
    "ended_at",
)


def step_record(step: ProtocolStep) -> dict[str, Any]:
    return record(StepAnswer.of(step))
