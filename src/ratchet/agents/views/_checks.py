"""What a version had to pass before its address could lead to it: its files, its tests, its start, its canary calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ratchet.agents.references import find_version
from ratchet.kernel import Outcome, RatchetError
from ratchet.ledger.agents import get_agent
from ratchet.ledger.runs import latest_attempts, latest_steps

if TYPE_CHECKING:
    from ratchet.ledger import ArtifactStore, Attempt, Transaction

_LOOKED_AT = 5


def checks(
    tx: Transaction, artifacts: ArtifactStore, name: str, version: str | None = None
) -> dict[str, Any] | None:
    """The checks of a version, of the current one if none is named, in their order; None if none are on record.

    Each has its `outcome`, its `seconds` and what was seen; the canary calls have their `answers`.
    """
    found = find_version(tx, get_agent(tx, name), version or "current")
    attempt = None if found.run_id is None else _passed(tx, found.run_id)
    if attempt is None:
        return None
    return {
        "version": found.version,
        "commit": found.commit,
        "attempt": attempt.id,
        "reason": attempt.verdict.get("reason"),
        "checks": _sections(artifacts, attempt.verdict.get("report")),
    }


def _passed(tx: Transaction, run_id: int) -> Attempt | None:
    for step in latest_steps(tx, run_id, limit=_LOOKED_AT):
        for attempt in latest_attempts(tx, step.id, limit=_LOOKED_AT):
            if attempt.outcome is Outcome.PASSED and isinstance(attempt.verdict, dict):
                return attempt
    return None


def _sections(artifacts: ArtifactStore, report: Any) -> list[dict[str, Any]]:
    """None where the report was deleted to make room, or is no report of ours."""
    try:
        sections = json.loads(artifacts.read(str(report)))["checks"]
        return [{"check": name, **section} for name, section in sections.items()]
    except (RatchetError, ValueError, LookupError, TypeError, AttributeError):
        return []
