"""Trials by their keys, without the parts that are JSON. One that has ended is read once."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from ratchet.ledger.tables import trials
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trial_keys import OF_RUN, Key
from ratchet.ledger.trial_rows import LINES, Trial, trial_of

_LINES_AT = LINES.where(OF_RUN, trials.c.number.in_(sa.bindparam("numbers", expanding=True)))


def trial_lines(tx: Transaction, run_id: int, keys: Sequence[Key]) -> list[Trial]:
    """The trials with these keys, in their order. One that was in flight may have ended since its key was read."""
    known = tx.remembered.several([(Trial, run_id, number, ended_at) for number, ended_at in keys])
    missing = [number for (number, _), trial in zip(keys, known, strict=True) if trial is None]
    if not missing:
        return known
    rows = tx.connection.execute(_LINES_AT, {"run": run_id, "numbers": missing}).all()
    read = {trial.number: trial for trial in map(trial_of, rows)}
    tx.remembered.add(
        {
            (Trial, run_id, trial.number, trial.ended_at): trial
            for trial in read.values()
            if trial.ended_at is not None
        }
    )
    return [trial or read[number] for (number, _), trial in zip(keys, known, strict=True)]
