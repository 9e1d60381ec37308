"""Steps of protocols as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.protocols.views.times import when

if TYPE_CHECKING:
    from ratchet.ledger.protocol_steps import ProtocolStep


def step_record(step: ProtocolStep) -> dict[str, Any]:
    return {
        "id": step.step_id,
        "protocol_run_id": step.run_id,
        "step_index": step.step_index,
        "step_name": step.name,
        "step_type": step.step_type,
        "status": str(step.status),
        "reason": step.reason,
        "retries": step.retries,
        "model": step.model,
        "engine_id": step.engine_id,
        "policy": step.policy,
        "runtime_state": step.runtime_state,
        "summary": step.summary,
        "depends_on": step.depends_on or [],
        "commit": step.commit,
        "awaits_ci": step.awaits_ci,
        "created_at": iso(step.created_at),
        "updated_at": iso(step.updated_at),
        "ended_at": when(step.ended_at),
    }
