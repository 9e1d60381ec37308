"""Steps of a spec as rows of the ledger."""

from __future__ import annotations

from typing import Any

from ratchet.protocols.spec._dependencies import names_of
from ratchet.protocols.spec.step_spec import ProtocolSpec
from ratchet.protocols.spec.writing import write_step_spec


def step_rows(spec: ProtocolSpec) -> list[dict[str, Any]]:
    """What `add_protocol_steps` is to add. Dependencies are by name; what follows from the order is left unsaid."""
    names = names_of(spec.steps)
    return [
        {
            "name": step.called,
            "step_index": index,
            "step_type": step.kind,
            "spec": write_step_spec(step),
            "engine_id": step.engine_id,
            "model": step.model,
            "policy": list(step.policies) or None,
            "depends_on": [names[label] for label in step.depends_on] or None,
        }
        for index, step in enumerate(spec.steps)
    ]
