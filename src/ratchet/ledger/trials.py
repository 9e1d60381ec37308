"""Trials: each one a row from the moment it is submitted, and the rows of imported ones.

A trial ends once; keeping one moves the run's best in the same transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import BudgetExceeded, Conflict, NotFound, StateChanged, TrialStatus, exp_id
from ratchet.ledger._columns import Json
from ratchet.ledger.tables import research, trial_tallies, trials
from ratchet.ledger.transaction import Transaction, upsert

# In the order of the fields of `Trial`: a row becomes one by its place, several times faster than by its names.
COLUMNS = [
    trials.c[name]
    for name in (
        "id",
        "run_id",
        "number",
        "parent",
        "depth",
        "specialist",
        "domain",
        "hypothesis",
        "expected_delta",
        "notes",
        "commit",
        "attempt_id",
        "proposal",
        "origin",
        "simulated",
        "tries",
        "started_at",
        "compared_to",
        "status",
        "score",
        "delta",
        "reason",
        "measurements",
        "evaluator",
        "certificate",
        "wall_ms",
        "imported",
        "ended_at",
    )
]
_STATUS = COLUMNS.index(trials.c.status)
_STATUSES: dict[str | None, TrialStatus | None] = {
    None: None,
    **{str(status): status for status in TrialStatus},
}
ALL = sa.select(*COLUMNS)
# What a line of a view needs: all but the parts that are JSON, whose reading costs more than the rest.
LINES = sa.select(*(sa.null().label(each.name) if isinstance(each.type, Json) else each for each in COLUMNS))


class Trial(NamedTuple):
    """`status` is `None` while it is in flight. `delta` is its score less that of `compared_to`, the best of then.

    The pages of `kept_lines`, `tried_trials`, `near_misses`, `children` and `ancestors` leave out `proposal`, `origin`,
    `measurements` and `imported`.
    """

    id: int
    run_id: int
    number: int
    parent: int | None
    depth: int
    specialist: str
    domain: str
    hypothesis: str
    expected_delta: str
    notes: str
    commit: str | None
    attempt_id: int | None
    proposal: Any
    origin: Any
    simulated: bool
    tries: int
    started_at: int
    compared_to: int | None = None
    status: TrialStatus | None = None
    score: float | None = None
    delta: float | None = None
    reason: str | None = None
    measurements: Any = None
    evaluator: str | None = None
    certificate: str | None = None
    wall_ms: int | None = None
    imported: Any = None
    ended_at: int | None = None

    @property
    def exp_id(self) -> str:
        return exp_id(self.number)


class TrialOrigin(NamedTuple):
    """As much of a trial as a strategy knows of it."""

    number: int
    parent: int | None
    specialist: str
    status: TrialStatus | None
    score: float | None
    origin: Any
    measurements: Any
    ended_at: int | None

    @classmethod
    def of(cls, trial: Trial) -> TrialOrigin:
        return cls._make(getattr(trial, name) for name in cls._fields)


def trial_of(row: Sequence[Any]) -> Trial:
    return Trial._make((*row[:_STATUS], _STATUSES[row[_STATUS]], *row[_STATUS + 1 :]))


_NEXT = (
    sa.update(research)
    .where(research.c.run_id == sa.bindparam("run"))
    .values(
        next_number=research.c.next_number + 1,
        trials=research.c.trials + sa.bindparam("counted", type_=sa.Integer),
    )
    .returning(research.c.next_number, research.c.trials)
)
_ABOVE = trials.alias()
# A trial without a parent has no depth, and one with a parent has more than none.
_INSERT = (
    sa.insert(trials)
    .values(
        depth=sa.select(sa.func.coalesce(sa.func.max(_ABOVE.c.depth) + 1, 0))
        .where(_ABOVE.c.run_id == sa.bindparam("run"), _ABOVE.c.number == sa.bindparam("below"))
        .scalar_subquery()
    )
    .returning(trials.c.id, trials.c.depth)
)
_BY_NUMBER = ALL.where(trials.c.run_id == sa.bindparam("run"), trials.c.number == sa.bindparam("wanted"))
_END = (
    sa.update(trials)
    .where(
        trials.c.run_id == sa.bindparam("run"),
        trials.c.number == sa.bindparam("wanted"),
        trials.c.status.is_(None),
    )
    .returning(*COLUMNS)
)
_UNCOUNT = (
    sa.update(research).where(research.c.run_id == sa.bindparam("run")).values(trials=research.c.trials - 1)
)
_SET_BEST = (
    sa.update(research)
    .where(research.c.run_id == sa.bindparam("run"))
    .values(
        best=sa.bindparam("number"),
        best_score=sa.bindparam("score"),
        best_commit=sa.bindparam("new_commit"),
        kept_at_ms=research.c.active_ms,
    )
)
_BEAT = _SET_BEST.where(research.c.best == sa.bindparam("beaten")).returning(research.c.run_id)
_TALLY = upsert(
    trial_tallies,
    ("run_id", "specialist", "status"),
    lambda new: {"count": trial_tallies.c["count"] + new["count"]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a specialist submits. `proposal` is what its engine wants to be told the score of.

    `origin` says how its parent was chosen and what kind of program it is, for the strategy of the run.
    """

    specialist: str
    hypothesis: str
    commit: str | None
    parent: int | None
    domain: str = ""
    expected_delta: str = ""
    notes: str = ""
    attempt_id: int | None = None
    proposal: Any = None
    origin: Mapping[str, Any] | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a trial ended. `delta` and `compared_to` only where the score was compared with the best."""

    status: TrialStatus
    reason: str = ""
    score: float | None = None
    delta: float | None = None
    compared_to: int | None = None
    measurements: Mapping[str, Any] | None = None
    evaluator: str | None = None
    certificate: str | None = None
    wall_ms: int = 0


def open_trial(
    tx: Transaction, run_id: int, submission: Submission, *, most: int | None = None, baseline: bool = False
) -> Trial:
    """Allot the next number to a submission. Raises `BudgetExceeded` when `most` trials have been submitted."""
    following = tx.connection.execute(_NEXT, {"run": run_id, "counted": int(not baseline)}).first()
    if following is None:
        raise NotFound("research run", run_id)
    next_number, submitted = following
    if most is not None and submitted > most:
        raise BudgetExceeded("run", run_id, "trials", most, most)
    row: dict[str, Any] = {
        "run_id": run_id,
        "number": next_number - 1,
        "parent": submission.parent,
        "specialist": submission.specialist,
        "domain": submission.domain or submission.specialist,
        "hypothesis": submission.hypothesis,
        "expected_delta": submission.expected_delta,
        "notes": submission.notes,
        "commit": submission.commit,
        "attempt_id": submission.attempt_id,
        "proposal": submission.proposal,
        "origin": None if submission.origin is None else dict(submission.origin),
        "simulated": submission.simulated,
        "tries": 0,
        "started_at": tx.now,
    }
    [(number, depth)] = tx.connection.execute(
        _INSERT, {**row, "run": run_id, "below": submission.parent}
    ).all()
    if submission.parent is not None and not depth:
        raise Conflict(f"run {run_id} has no trial {exp_id(submission.parent)} to be the parent of another")
    tx.event(
        "trial.submitted",
        run_id=run_id,
        attempt_id=submission.attempt_id,
        message=submission.hypothesis,
        data={"exp_id": exp_id(row["number"]), "specialist": submission.specialist},
    )
    return Trial(id=number, depth=depth, **row)


def try_again(tx: Transaction, run_id: int, number: int, reason: str) -> Trial:
    """Note that a trial in flight could not be measured and is to be measured again."""
    again = (
        sa.update(trials)
        .where(trials.c.run_id == run_id, trials.c.number == number, trials.c.status.is_(None))
        .values(tries=trials.c.tries + 1)
        .returning(*COLUMNS)
    )
    row = tx.connection.execute(again).first()
    if row is None:
        raise Conflict(f"trial {exp_id(number)} of run {run_id} is not in flight")
    tx.event("trial.retried", run_id=run_id, message=reason, data={"exp_id": exp_id(number)})
    return trial_of(row)


def end_trial(tx: Transaction, run_id: int, number: int, ending: Ending) -> Trial:
    """Record how a trial in flight ended. Raises `Conflict` when it is not in flight.

    One that is kept becomes the best of its run. Raises `StateChanged` when that is not the one it was compared to.
    """
    values = {
        "status": str(ending.status),
        "reason": ending.reason,
        "score": ending.score,
        "delta": ending.delta,
        "compared_to": ending.compared_to,
        "measurements": None if ending.measurements is None else dict(ending.measurements),
        "evaluator": ending.evaluator,
        "certificate": ending.certificate,
        "wall_ms": ending.wall_ms,
        "ended_at": tx.now,
    }
    row = tx.connection.execute(_END, {"run": run_id, "wanted": number, **values}).first()
    if row is None:
        raise Conflict(f"trial {exp_id(number)} of run {run_id} is not in flight")
    ended = trial_of(row)
    if ending.status in (TrialStatus.BASELINE, TrialStatus.KEEP):
        _move_best(tx, run_id, ended, ending)
    elif not ending.status.tried:
        tx.connection.execute(_UNCOUNT, {"run": run_id})
    _count(tx, run_id, ended.specialist, ending.status)
    tx.event(
        f"trial.{ending.status}",
        run_id=run_id,
        attempt_id=ended.attempt_id,
        message=ending.reason,
        data={
            "exp_id": ended.exp_id,
            "specialist": ended.specialist,
            "score": ending.score,
            "delta": ending.delta,
        },
    )
    return ended


def _move_best(tx: Transaction, run_id: int, ended: Trial, ending: Ending) -> None:
    best = {"run": run_id, "number": ended.number, "score": ending.score, "new_commit": ended.commit}
    if ending.status is TrialStatus.BASELINE or ending.compared_to is None:
        tx.connection.execute(_SET_BEST, best)
        return
    beaten = tx.connection.execute(_BEAT, {**best, "beaten": ending.compared_to}).first()
    if beaten is None:
        now = tx.connection.execute(sa.select(research.c.best).where(research.c.run_id == run_id)).scalar()
        raise StateChanged("the best of run", run_id, (exp_id(ending.compared_to),), exp_id(now or 0))


def _count(tx: Transaction, run_id: int, specialist: str, status: TrialStatus) -> None:
    tally = {"run_id": run_id, "specialist": specialist, "status": str(status), "count": 1}
    tx.connection.execute(_TALLY(tx.dialect), tally)


def find_trial(tx: Transaction, run_id: int, number: int) -> Trial | None:
    row = tx.connection.execute(_BY_NUMBER, {"run": run_id, "wanted": number}).first()
    return None if row is None else trial_of(row)


def get_trial(tx: Transaction, run_id: int, number: int) -> Trial:
    found = find_trial(tx, run_id, number)
    if found is None:
        raise NotFound("trial", f"{exp_id(number)} of run {run_id}")
    return found


_BATCH = 1000
_INSERT_IMPORTED = sa.insert(trials)


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
        tx.connection.execute(_INSERT_IMPORTED, [_values(run_id, row) for row in batch])
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
