"""What each specialist has brought and what it has cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ratchet.kernel import TrialStatus, Usage
from ratchet.ledger.research import list_specialists
from ratchet.ledger.trial_pages import tallies
from ratchet.research.views.words import NOTHING, cell, cost_of, duration, json_text, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Yield:
    """`failures` are failed sessions in a row and `problem` is what the last of them failed of."""

    specialist: str
    sessions: int = 0
    failures: int = 0
    problem: str | None = None
    usage: Usage = field(default_factory=Usage)
    by_status: Mapping[TrialStatus, int] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Those that count: an infrastructure error is nobody's trial."""
        return sum(count for status, count in self.by_status.items() if status.tried)

    @property
    def keeps(self) -> int:
        return self.by_status.get(TrialStatus.KEEP, 0)

    @property
    def keeps_per_trial(self) -> float | None:
        return self.keeps / self.trials if self.trials else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "specialist": json_text(self.specialist),
            "sessions": self.sessions,
            "trials": self.trials,
            "keeps": self.keeps,
            "keeps_per_trial": self.keeps_per_trial,
            "by_status": {str(status): count for status, count in self.by_status.items()},
            **usage_record(self.usage),
            "failures": self.failures,
            "problem": json_text(self.problem),
        }


@dataclass(frozen=True, slots=True)
class Yields:
    rows: tuple[Yield, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        return [each.to_dict() for each in self.rows]

    def to_markdown(self) -> str:
        columns = (
            "specialist",
            "sessions",
            "trials",
            "keeps",
            "per trial",
            "tokens",
            "cost",
            "time",
            "problem",
        )
        return "\n".join(table(columns, [cells(each) for each in self.rows]))


def cells(row: Yield) -> list[str]:
    share = row.keeps_per_trial
    return [
        cell(row.specialist, 40),
        f"{row.sessions}",
        f"{row.trials}",
        f"{row.keeps}",
        NOTHING if share is None else f"{share:.3f}",
        f"{row.usage.tokens:,}",
        cost_of(row.usage),
        duration(row.usage.wall_seconds),
        f"{row.failures}× {cell(row.problem or '', 80)}" if row.failures else "",
    ]


def yields(tx: Transaction, run_id: int) -> Yields:
    """Every specialist that has had a session or a trial. The baseline is nobody's."""
    counted = tallies(tx, run_id)
    for counts in counted.values():
        counts.pop(TrialStatus.BASELINE, None)
    rows = {name: Yield(name, by_status=counts) for name, counts in counted.items() if counts}
    for each in list_specialists(tx, run_id):
        rows[each.name] = Yield(
            each.name, each.sessions, each.failures, each.problem, each.usage, counted.get(each.name, {})
        )
    return Yields(tuple(rows[name] for name in sorted(rows)))


def usage_record(usage: Usage) -> dict[str, Any]:
    return {
        "tokens": usage.tokens,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.whole_cost_usd,
        "wall_seconds": usage.wall_seconds,
    }
