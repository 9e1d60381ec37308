"""Questions to people as forms: what can be chosen, what is recommended, and what is to be typed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ratchet.ledger import Transaction
from ratchet.ledger.clarifications import Clarification, latest_answered, list_clarifications
from ratchet.protocols.views import clarification_record

_MOST = 100


def asked_of(
    tx: Transaction, *, project_id: int | None = None, run_id: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The open questions about a project or a run, those that block first, and what was answered, newest first."""
    still_open = list_clarifications(tx, project_id=project_id, run_id=run_id, open_only=True, limit=_MOST)
    answered = latest_answered(tx, project_id=project_id, run_id=run_id, limit=_MOST)
    return forms(still_open), [clarification_record(each) for each in answered]


def forms(asked: Iterable[Clarification]) -> list[dict[str, Any]]:
    """Each with what its form needs; those that something waits for come first."""
    return [_form(each) for each in sorted(asked, key=lambda each: (not each.blocking, each.id))]


def _form(asked: Clarification) -> dict[str, Any]:
    options = asked.options if isinstance(asked.options, list) else None
    recommended = json.dumps(asked.recommended)
    return {
        **clarification_record(asked),
        "choices": None
        if options is None
        else [
            {
                "value": json.dumps(each),
                "text": _text(each),
                "recommended": json.dumps(each) == recommended and asked.recommended is not None,
            }
            for each in options
        ],
        "wants_json": isinstance(asked.recommended, list | dict | bool | int | float),
        "prefilled": asked.recommended or "" if isinstance(asked.recommended, str | None) else recommended,
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
