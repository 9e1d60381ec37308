"""Attempts as they are shown: how each ended, what it used, and where its evidence is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.ledger.artifacts import of_attempts
from ratchet.ledger.sessions import SessionRow
from ratchet.ledger.sessions import of_attempts as sessions_of_attempts
from ratchet.ledger.usage import totals
from ratchet.loop import CHANGE_FILE, PROMPT_FILE
from ratchet.protocols.views.times import when

if TYPE_CHECKING:
    from ratchet.ledger import Artifact, Attempt, Transaction

_TRANSCRIPT = "-transcript.jsonl"
_EVENT_DATA = "event-data.json"


def attempt_records(tx: Transaction, attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """What there is of each attempt, found for all of them at once. Links are paths of the API."""
    numbers = [attempt.id for attempt in attempts]
    artifacts, sessions = of_attempts(tx, numbers), sessions_of_attempts(tx, numbers)
    used = totals(tx, "attempt", numbers)
    return [
        {
            "id": attempt.id,
            "run_id": attempt.run_id,
            "step_id": attempt.step_id,
            "number": attempt.number,
            "process_id": attempt.process_id,
            "simulated": attempt.simulated,
            "outcome": None if attempt.outcome is None else str(attempt.outcome),
            "reason": attempt.reason,
            "verdict": attempt.verdict,
            "started_at": iso(attempt.started_at),
            "ended_at": when(attempt.ended_at),
            "usage": asdict(used[attempt.id]),
            "sessions": [_session(each) for each in sessions if each.attempt_id == attempt.id],
            "links": _links(attempt, [each for each in artifacts if each.attempt_id == attempt.id]),
        }
        for attempt in attempts
    ]


def _session(session: SessionRow) -> dict[str, Any]:
    return {
        "id": session.id,
        "role": session.role,
        "engine": session.engine,
        "model": session.model,
        "failure": session.failure,
        "reason": session.reason,
        "simulated": session.simulated,
        "usage": asdict(session.usage),
        "transcript": None if session.transcript is None else _content(session.transcript),
        "at": iso(session.at),
    }


def _links(attempt: Attempt, artifacts: Sequence[Artifact]) -> dict[str, Any]:
    place = f"/attempts/{attempt.id}"
    newest = {artifact.name: _content(artifact.sha256) for artifact in artifacts}
    transcripts = [name for name in newest if name.endswith(_TRANSCRIPT)]
    others = {PROMPT_FILE, CHANGE_FILE, _EVENT_DATA, *transcripts}
    return {
        "self": place,
        "log": f"{place}/log",
        "log_stream": f"{place}/log/stream",
        "artifacts": f"{place}/artifacts",
        "prompt": newest.get(PROMPT_FILE),
        "diff": f"{place}/diff" if CHANGE_FILE in newest else None,
        "transcripts": {name.removesuffix(_TRANSCRIPT): newest[name] for name in transcripts},
        "reports": {name: address for name, address in newest.items() if name not in others},
    }


def _content(sha256: str) -> str:
    return f"/artifacts/{sha256}"
