"""What was tried last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.trial_pages import tried_trials
from ratchet.research.views.row import record, status_of
from ratchet.research.views.words import cell, number, signed, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_TEXT = 80


@dataclass(frozen=True, slots=True)
class Activity:
    """Newest first. What could not be measured, or was taken out afterwards, tells nothing and is not here."""

    score_field: str
    rows: tuple[Trial, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        return [record(each) for each in self.rows]

    def to_markdown(self) -> str:
        if not self.rows:
            return "Nothing was tried yet."
        return "\n".join(table(activity_head(self.score_field), [tried_cells(each) for each in self.rows]))


def activity_head(score_field: str) -> tuple[str, ...]:
    return ("exp", "specialist", "status", cell(score_field, 40), "Δ", "hypothesis")


def tried_cells(trial: Trial, text: str | None = None) -> list[str]:
    """The row of a trial, with its own words or with `text` in their place."""
    return [
        trial.exp_id,
        cell(trial.specialist, 40),
        status_of(trial),
        number(trial.score),
        signed(trial.delta),
        cell(trial.hypothesis, _TEXT) if text is None else text,
    ]


def recent_activity(
    tx: Transaction,
    run_id: int,
    *,
    specialist: str | None = None,
    limit: int = 30,
    standing: Standing | None = None,
) -> Activity:
    """The last trials of all specialists, or of one. `standing` is looked up unless it is at hand."""
    rows = tried_trials(tx, run_id, specialist=specialist, limit=limit)
    return Activity((standing or get_standing(tx, run_id)).score_field, tuple(rows))
