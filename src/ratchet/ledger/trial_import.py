"""Trials that another system has made: written in bulk, all of a run's at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Conflict, NotFound, TrialStatus
from ratchet.ledger.tables import research, trial_tallies, trials
from ratchet.ledger.transaction import Transaction

_BATCH = 1000
_INSERT = sa.insert(trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrial:
    """A trial that has ended elsewhere, at the time `at`. `imported` is its record there, word for word."""

    number: int
    parent: int | None
    depth: int
    compared_to: int | None
    specialist: str
    domain: str
    hypothesis: str
    expected_delta: str
    notes: str
    commit: str | None
    status: TrialStatus
    score: float | None
    delta: float | None
    measurements: Any
    imported: Any
    at: int


_COLUMNS = tuple(each.name for each in fields(ImportedTrial) if each.name != "at")


def import_trials(tx: Transaction, run_id: int, rows: Iterable[ImportedTrial]) -> int:
    """Give a run that has no trials yet all that it will ever have; how many there are.

    The tallies and the standing come out as if each had been tried here; the last that was kept is the best. There are
    no events: nothing happened now. Raises `Conflict` when the run has trials, `NotFound` when it is not research.
    """
    following = sa.select(research.c.next_number).where(research.c.run_id == run_id).with_for_update()
    number = tx.connection.execute(following).scalar()
    if number is None:
        raise NotFound("research run", run_id)
    if number != 0:
        raise Conflict(f"run {run_id} has trials already, so none can be imported into it")
    tallies: Counter[tuple[str, str]] = Counter()
    best: ImportedTrial | None = None
    highest, counted, total = -1, 0, 0
    source = iter(rows)
    while batch := list(islice(source, _BATCH)):
        tx.connection.execute(_INSERT, [_values(run_id, row) for row in batch])
        tallies.update((row.specialist, str(row.status)) for row in batch)
        counted += sum(row.status.tried and row.status is not TrialStatus.BASELINE for row in batch)
        highest = max(highest, *(row.number for row in batch))
        total += len(batch)
        best = next(
            (row for row in reversed(batch) if row.status in (TrialStatus.BASELINE, TrialStatus.KEEP)), best
        )
    _stand(tx, run_id, highest + 1, counted, best)
    if tallies:
        tx.connection.execute(
            sa.insert(trial_tallies),
            [
                {"run_id": run_id, "specialist": specialist, "status": status, "count": count}
                for (specialist, status), count in tallies.items()
            ],
        )
    return total


def _values(run_id: int, row: ImportedTrial) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in _COLUMNS},
        "status": str(row.status),
        "run_id": run_id,
        "simulated": False,
        "tries": 0,
        "started_at": row.at,
        "ended_at": row.at,
    }


def _stand(tx: Transaction, run_id: int, following: int, counted: int, best: ImportedTrial | None) -> None:
    values: dict[str, Any] = {"next_number": following, "trials": counted}
    if best is not None:
        values |= {"best": best.number, "best_score": best.score, "best_commit": best.commit}
    tx.connection.execute(sa.update(research).where(research.c.run_id == run_id).values(**values))
