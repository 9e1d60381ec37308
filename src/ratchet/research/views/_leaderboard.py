"""The newest kept trials, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import TrialStatus
from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.trial_pages import kept_lines, kept_trials
from ratchet.research.views.row import measured, record
from ratchet.research.views.words import cell, number, signed, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_TEXT = 100
TOP = 20


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """In the order of keeping, newest first: each was judged better than the one after it, whatever their noise."""

    score_field: str
    rows: tuple[Trial, ...]
    columns: tuple[str, ...] = ()

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {**record(each), "measurements": {name: measured(each, name) for name in self.columns}}
            for each in self.rows
        ]

    def to_markdown(self) -> str:
        if not self.rows:
            return "Nothing was kept yet."
        return "\n".join(
            table(
                leaderboard_head(self.score_field, self.columns),
                [kept_cells(each, self.columns) for each in self.rows],
            )
        )


def leaderboard_head(score_field: str, columns: Sequence[str] = ()) -> tuple[str, ...]:
    shown = (cell(name, 40) for name in (score_field, *columns))
    return ("exp", *shown, "Δ", "specialist", "hypothesis")


def kept_cells(trial: Trial, columns: Sequence[str] = (), *, text: str | None = None) -> list[str]:
    """The row of a trial, with its own words or with `text` in their place."""
    numbers = [number(trial.score), *(number(measured(trial, name)) for name in columns)]
    shown = cell(trial.hypothesis, _TEXT) if text is None else text
    return [trial.exp_id, *numbers, signed(trial.delta), cell(trial.specialist, 40), shown]


def leaderboard(
    tx: Transaction,
    run_id: int,
    *,
    limit: int = TOP,
    columns: Sequence[str] = (),
    standing: Standing | None = None,
) -> Leaderboard:
    """`columns` names what else the evaluator measured that is worth a column."""
    rows = kept_best_first(tx, run_id, limit=limit, brief=not columns)
    return Leaderboard((standing or get_standing(tx, run_id)).score_field, tuple(rows), tuple(columns))


def kept_best_first(tx: Transaction, run_id: int, *, limit: int = TOP, brief: bool = False) -> list[Trial]:
    """What was kept in the order of keeping, newest first, without the baseline; `brief` leaves out what is JSON."""
    # One more than wanted: the baseline is among them, and is not something that was kept.
    page = kept_lines if brief else kept_trials
    kept = [each for each in page(tx, run_id, limit=limit + 1) if each.status is TrialStatus.KEEP]
    # Of trials side by side the one that was handed in last need not be the one that was kept last.
    kept.sort(key=lambda each: (each.ended_at or 0, each.number), reverse=True)
    return kept[:limit]
