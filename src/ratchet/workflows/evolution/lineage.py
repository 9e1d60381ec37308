"""What was tried before with a tool, so that nobody tries it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.kernel import Outcome
from ratchet.ledger import Transaction
from ratchet.ledger.tools import VersionRow, VersionStatus, list_versions

EVOLVED = "evolved"
_MOST = 10
# Versions that came from elsewhere stand between those that were tried.
_LOOKED_AT = 50
_LONGEST = 500
_GAIN = ".gain"


@dataclass(frozen=True, slots=True)
class Earlier:
    """One try at a better version: what was changed and what came of it."""

    summary: str
    taken: bool
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def told(self) -> str:
        """In one line, however it was written."""
        outcome = "taken" if self.taken else "refused"
        gains = [(name, value) for name, value in self.numbers.items() if name.endswith(_GAIN)]
        shown = ", ".join(f"{name.removesuffix(_GAIN)} {value:+.1%}" for name, value in gains)
        told = f"{self.summary[:_LONGEST]} — {outcome}: {self.reason[:_LONGEST]}"
        return " ".join(f"{told} (gains: {shown})".split() if shown else told.split())


def earlier_tries(tx: Transaction, tool_id: int, *, but_run: int | None = None) -> list[Earlier]:
    """The last tries with a tool, oldest first, without those of one run."""
    rows = list_versions(tx, tool_id, limit=_LOOKED_AT)
    tried = [row for row in rows if row.origin == EVOLVED and (but_run is None or row.run_id != but_run)]
    return [_earlier(row) for row in reversed(tried[:_MOST])]


def refused_variants(tx: Transaction, tool_id: int, incumbent_id: int) -> dict[str, str]:
    """What need not be measured: variants of this very version that a judge has refused, and versions that somebody
    has taken back. By their hashes, with the reason."""
    rows = list_versions(tx, tool_id, limit=_LOOKED_AT)
    return {
        row.hash: row.reason or "no reason is on record"
        for row in rows
        if row.status is VersionStatus.ROLLED_BACK or _was_refused(row, incumbent_id)
    }


def _was_refused(row: VersionRow, incumbent_id: int) -> bool:
    """By a judge. Others passed and were not taken for another reason, which may be gone."""
    refused = row.status is VersionStatus.REFUSED and row.parent_id == incumbent_id
    return refused and (row.verdict or {}).get("outcome") == Outcome.FAILED


def _earlier(row: VersionRow) -> Earlier:
    verdict: Mapping[str, Any] = row.verdict or {}
    return Earlier(
        summary=str(verdict.get("summary") or "no summary is on record"),
        taken=row.status in (VersionStatus.PROMOTED, VersionStatus.ROLLED_BACK),
        reason=row.reason or "no reason is on record",
        numbers=verdict.get("measurements") or {},
    )
