"""Questions and answers as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.protocols.views.times import when

if TYPE_CHECKING:
    from ratchet.ledger.clarifications import Clarification


def clarification_record(asked: Clarification) -> dict[str, Any]:
    return {
        "id": asked.id,
        "project_id": asked.project_id,
        "protocol_run_id": asked.run_id,
        "step_run_id": asked.step_id,
        "key": asked.key,
        "question": asked.question,
        "options": asked.options,
        "recommended": asked.recommended,
        "applies_to": asked.applies_to,
        "blocking": asked.blocking,
        "status": "open" if asked.open else "answered",
        "answer": asked.answer,
        "answered_by": asked.answered_by,
        "answered_at": when(asked.answered_at),
        "created_at": iso(asked.created_at),
    }
