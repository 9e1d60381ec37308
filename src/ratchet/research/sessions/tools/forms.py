"""How tools are asked and how they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.ledger.trial_rows import Trial

Form = Mapping[str, Any]
TRIAL: Form = {
    "type": ["string", "integer"],
    "description": "the id of a trial, such as 075; 000 is the baseline",
}
OFFSET: Form = {"type": "integer", "minimum": 0, "description": "where to read on; 0 is the beginning"}
_TEXT = 300


def form(required: Mapping[str, Form] | None = None, optional: Mapping[str, Form] | None = None) -> Form:
    """The schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**(required or {}), **(optional or {})},
        "required": list(required or {}),
        "additionalProperties": False,
    }


def text(description: str, *, longest: int) -> Form:
    return {"type": "string", "maxLength": longest, "description": description}


def told(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False, default=str)


def row(trial: Trial) -> dict[str, Any]:
    """A trial as models are shown it."""
    return {
        "exp_id": trial.exp_id,
        "parent": None if trial.parent is None else f"{trial.parent:03}",
        "specialist": trial.specialist,
        "status": trial.status or "running",
        "score": trial.score,
        "delta_vs_best": trial.delta,
        "expected_delta": trial.expected_delta,
        "hypothesis": trial.hypothesis[:_TEXT],
        "reason": (trial.reason or "")[:_TEXT],
    }


def page(content: str, offset: int, *, size: int) -> dict[str, Any]:
    """A part of a long text, and where the next one begins."""
    end = offset + size
    rest = {"next_offset": end} if end < len(content) else {}
    return {"characters": len(content), "offset": offset, **rest, "content": content[offset:end]}
