"""Pages of trials, as views show them. Each reads a bounded page from the end of one index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import Direction, NotFound, TrialStatus, exp_id
from ratchet.ledger._columns import to_json
from ratchet.ledger.prepared import Prepared
from ratchet.ledger.tables import trial_tallies, trials
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trial_rows import ALL, KEYS, LINES, Trial, trial_of

_OF_RUN = trials.c.run_id == sa.bindparam("run")
_MOST = sa.bindparam("most", type_=sa.Integer)
# Word for word the conditions of the partial indexes: a database sees no other wording, and no parameter, as the same.
_KEPT = sa.text("status IN ('baseline', 'keep')")
_MISSED = sa.text("score IS NOT NULL AND status NOT IN ('baseline', 'keep', 'infra_error', 'harness_abort')")
# How far back a page looks for trials that tell something, where it must pass over others.
_WITHIN = 500
# As many numbers as are looked up one by one: for a longer list PostgreSQL would rather read a whole index.
_AT_ONCE = 100
# Of free text, as much as a number in it needs.
_EXPECTED = 80
_POINTS = sa.select(
    trials.c.number,
    trials.c.specialist,
    trials.c.status,
    trials.c.score,
    trials.c.delta,
    sa.func.substr(trials.c.expected_delta, 1, _EXPECTED),
    trials.c.ended_at,
)
_POINTS_AT = _POINTS.where(
    trials.c.run_id == sa.bindparam("run"), trials.c.number.in_(sa.bindparam("numbers", expanding=True))
)
_LINE_START = (
    sa.select(trials.c.number, trials.c.parent, sa.literal(1).label("place"))
    .where(trials.c.run_id == sa.bindparam("run"), trials.c.number == sa.bindparam("of"))
    .cte("line", recursive=True)
)
# Parents come before children; an imported row that says otherwise ends the line.
_LINE_NUMBERS = _LINE_START.union_all(
    sa.select(trials.c.number, trials.c.parent, _LINE_START.c.place + 1).where(
        trials.c.run_id == sa.bindparam("run"),
        trials.c.number == _LINE_START.c.parent,
        trials.c.number < _LINE_START.c.number,
        _LINE_START.c.place < sa.bindparam("most", type_=sa.Integer),
    )
)
_LINE = Prepared(
    KEYS.join(_LINE_NUMBERS, trials.c.number == _LINE_NUMBERS.c.number)
    .where(trials.c.run_id == sa.bindparam("run"))
    .order_by(_LINE_NUMBERS.c.place)
)
_CHILDREN = Prepared(
    KEYS.where(_OF_RUN, trials.c.parent == sa.bindparam("of")).order_by(trials.c.number.desc()).limit(_MOST)
)
# Above every number that a trial can have.
_ENDLESS = 2**31 - 1
_BEFORE = trials.c.number < sa.bindparam("before")
_KEPT_LAST = Prepared(ALL.where(_OF_RUN, _KEPT, _BEFORE).order_by(trials.c.number.desc()).limit(_MOST))
_KEPT_LINES = Prepared(KEYS.where(_OF_RUN, _KEPT, _BEFORE).order_by(trials.c.number.desc()).limit(_MOST))
_NEAREST = {
    Direction.MAX: Prepared(KEYS.where(_OF_RUN, _MISSED).order_by(trials.c.score.desc()).limit(_MOST)),
    Direction.MIN: Prepared(KEYS.where(_OF_RUN, _MISSED).order_by(trials.c.score.asc()).limit(_MOST)),
}
_KEPT_SCORES = Prepared(
    sa.select(trials.c.number, trials.c.score, trials.c.ended_at)
    .where(_OF_RUN, _KEPT, _BEFORE)
    .order_by(trials.c.number.desc())
    .limit(_MOST)
)
_BRANCHES = Prepared(
    sa.select(trials.c.number, trials.c.parent, trials.c.status, trials.c.score, trials.c.specialist)
    .where(_OF_RUN, trials.c.number > sa.bindparam("after"))
    .order_by(trials.c.number)
    .limit(_MOST)
)
_FLYING = Prepared(ALL.where(_OF_RUN, trials.c.status.is_(None)).order_by(trials.c.number))
_TALLIES = Prepared(
    sa.select(trial_tallies.c.specialist, trial_tallies.c.status, trial_tallies.c["count"])
    .where(trial_tallies.c.run_id == sa.bindparam("run"))
    .order_by(trial_tallies.c.specialist, trial_tallies.c.status)
)


def _tried(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The newest trials that tell something, out of a bounded page."""
    page = KEYS.add_columns(trials.c.status).where(_OF_RUN, *conditions)
    newest = page.order_by(trials.c.number.desc()).limit(_WITHIN).subquery()
    untold = [newest.c.status == str(status) for status in TrialStatus if not status.tried]
    told = newest.c.status.is_(None) | sa.not_(sa.or_(*untold))
    return sa.select(newest.c.number, newest.c.ended_at).where(told).limit(_MOST)


_TRIED = Prepared(_tried())
_TRIED_BY = Prepared(_tried(trials.c.specialist == sa.bindparam("name")))


_NUMBERS_GIVEN = sa.text("SELECT value FROM json_each(:numbers)").bindparams(
    sa.bindparam("numbers", type_=sa.Text)
)
_LINES_AT = Prepared(
    {
        "sqlite": LINES.where(_OF_RUN, trials.c.number.in_(_NUMBERS_GIVEN)),
        "postgresql": LINES.where(
            _OF_RUN, trials.c.number == sa.any_(sa.bindparam("numbers", type_=sa.ARRAY(sa.Integer)))
        ),
    }
)


class Point(NamedTuple):
    """As much of a trial as a plot or a statistic needs, so that thousands of them are cheap."""

    number: int
    specialist: str
    status: TrialStatus | None
    score: float | None
    delta: float | None
    expected_delta: str
    ended_at: int | None


class KeptScore(NamedTuple):
    """As much of what was kept as the line of the best needs."""

    number: int
    score: float | None
    ended_at: int | None


class Branch(NamedTuple):
    """As much of a trial as a drawing of the whole tree needs. `status` is None while it is in flight."""

    number: int
    parent: int | None
    status: str | None
    score: float | None
    specialist: str


def latest_trials(
    tx: Transaction,
    run_id: int,
    *,
    specialist: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Trial]:
    """The last trials, last first, a page at a time, those in flight and the baseline among them."""
    query = ALL.where(trials.c.run_id == run_id)
    if specialist is not None:
        query = query.where(trials.c.specialist == specialist)
    if before is not None:
        query = query.where(trials.c.number < before)
    return _found(tx, query.order_by(trials.c.number.desc()).limit(limit))


def tried_trials(
    tx: Transaction, run_id: int, *, specialist: str | None = None, limit: int = 50
) -> list[Trial]:
    """The last trials, last first, without those that tell nothing about an idea. Looks back over a bounded page."""
    given = {"run": run_id, "most": limit}
    if specialist is None:
        return _lines(tx, _TRIED, given)
    return _lines(tx, _TRIED_BY, {**given, "name": specialist})


def kept_trials(tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 20) -> list[Trial]:
    """The baseline and what was kept, newest first."""
    return _ready(tx, _KEPT_LAST, _page(run_id, before, limit))


def kept_lines(tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 20) -> list[Trial]:
    """The same without the parts that are JSON, so that hundreds of them are cheap."""
    return _lines(tx, _KEPT_LINES, _page(run_id, before, limit))


def kept_scores(
    tx: Transaction, run_id: int, *, before: int | None = None, limit: int = 20
) -> list[KeptScore]:
    """The baseline and what was kept, newest first, and nothing of them but the score."""
    return list(map(KeptScore._make, _KEPT_SCORES.rows(tx.connection, _page(run_id, before, limit))))


def near_misses(tx: Transaction, run_id: int, direction: Direction, *, limit: int = 10) -> list[Trial]:
    """The best scores that were not kept, whatever kept them from it."""
    return _lines(tx, _NEAREST[direction], {"run": run_id, "most": limit})


def children(tx: Transaction, run_id: int, parent: int, *, limit: int = 50) -> list[Trial]:
    """The newest trials that were made from `parent`, newest first."""
    return _lines(tx, _CHILDREN, {"run": run_id, "of": parent, "most": limit})


def ancestors(tx: Transaction, run_id: int, number: int, *, limit: int = 50) -> list[Trial]:
    """A trial and those that it came from, itself first."""
    line = _lines(tx, _LINE, {"run": run_id, "of": number, "most": limit})
    if not line:
        raise NotFound("trial", f"{exp_id(number)} of run {run_id}")
    return line


def trials_at(tx: Transaction, run_id: int, numbers: Sequence[int]) -> list[Trial]:
    """The trials with these numbers, in order."""
    query = ALL.where(trials.c.run_id == run_id, trials.c.number.in_(list(numbers)))
    return _found(tx, query.order_by(trials.c.number))


def trials_after(tx: Transaction, run_id: int, after: int = -1, *, limit: int = 500) -> list[Trial]:
    """The trials with a number above `after`, oldest first, a page at a time: for whoever reads all of them."""
    query = ALL.where(trials.c.run_id == run_id, trials.c.number > after)
    return _found(tx, query.order_by(trials.c.number).limit(limit))


def parents(tx: Transaction, run_id: int) -> Iterator[tuple[int, int | None]]:
    """The number of every trial that has ended and that of its parent, oldest first, and nothing else of them."""
    query = sa.select(trials.c.number, trials.c.parent).where(
        trials.c.run_id == run_id, trials.c.status.is_not(None)
    )
    rows = tx.connection.execute(query.order_by(trials.c.number), execution_options={"yield_per": 5000})
    return ((number, parent) for number, parent in rows)


def branches_after(tx: Transaction, run_id: int, after: int = -1, *, limit: int = 5000) -> list[Branch]:
    """Where the trials with a number above `after` branch off, oldest first, a page at a time."""
    rows = _BRANCHES.rows(tx.connection, {"run": run_id, "after": after, "most": limit})
    return list(map(Branch._make, rows))


def points_at(tx: Transaction, run_id: int, numbers: Sequence[int]) -> list[Point]:
    """The trials with these numbers, in order, as points."""
    ordered = sorted(set(numbers))
    found: list[Point] = []
    for start in range(0, len(ordered), _AT_ONCE):
        chunk = ordered[start : start + _AT_ONCE]
        found += map(_point, tx.connection.execute(_POINTS_AT, {"run": run_id, "numbers": chunk}))
    return sorted(found, key=lambda point: point.number)


def latest_points(tx: Transaction, run_id: int, *, limit: int = 200) -> list[Point]:
    """The last trials, last first, as points."""
    query = _POINTS.where(trials.c.run_id == run_id).order_by(trials.c.number.desc()).limit(limit)
    return [_point(row) for row in tx.connection.execute(query)]


def in_flight(tx: Transaction, run_id: int) -> list[Trial]:
    """What was submitted and has not ended, in order: what runs now, or what a dead process left."""
    return _ready(tx, _FLYING, {"run": run_id})


def ended_since(
    tx: Transaction, run_id: int, specialist: str, after: int, *, limit: int = 100
) -> list[Trial]:
    """The trials of a specialist above the number `after` up to the first that is in flight, oldest first."""
    query = ALL.where(trials.c.run_id == run_id, trials.c.specialist == specialist, trials.c.number > after)
    found = _found(tx, query.order_by(trials.c.number).limit(limit))
    first_open = next((at for at, trial in enumerate(found) if trial.status is None), len(found))
    return found[:first_open]


def tallies(tx: Transaction, run_id: int) -> dict[str, dict[TrialStatus, int]]:
    """How many trials of each specialist ended how."""
    counted: dict[str, dict[TrialStatus, int]] = defaultdict(dict)
    for specialist, status, count in _TALLIES.rows(tx.connection, {"run": run_id}):
        counted[specialist][TrialStatus(status)] = count
    return dict(counted)


def keep_counts(tx: Transaction, run_ids: Sequence[int]) -> dict[int, int]:
    """How many trials of each of these runs were kept."""
    total = sa.func.sum(trial_tallies.c["count"])
    query = sa.select(trial_tallies.c.run_id, total).where(
        trial_tallies.c.run_id.in_(list(run_ids)), trial_tallies.c.status == str(TrialStatus.KEEP)
    )
    found = {
        run_id: int(count) for run_id, count in tx.connection.execute(query.group_by(trial_tallies.c.run_id))
    }
    return {run_id: found.get(run_id, 0) for run_id in run_ids}


def _page(run_id: int, before: int | None, limit: int) -> dict[str, int]:
    return {"run": run_id, "before": _ENDLESS if before is None else before, "most": limit}


def _lines(tx: Transaction, query: Prepared, given: Mapping[str, Any]) -> list[Trial]:
    """The trials of a page without the parts that are JSON. One that has ended is read once."""
    run_id = given["run"]
    keys = query.rows(tx.connection, given)
    found: dict[int, Trial] = {
        number: known
        for number, ended_at in keys
        if (known := tx.remembered.get((Trial, run_id, number, ended_at))) is not None
    }
    missing = [number for number, _ in keys if number not in found]
    if missing:
        numbers = missing if tx.on_postgresql else to_json(missing)
        read = list(map(trial_of, _LINES_AT.rows(tx.connection, {"run": run_id, "numbers": numbers})))
        found |= {trial.number: trial for trial in read}
        tx.remembered.add(
            {
                (Trial, run_id, trial.number, trial.ended_at): trial
                for trial in read
                if trial.ended_at is not None
            }
        )
    return [found[number] for number, _ in keys]


def _ready(tx: Transaction, query: Prepared, given: Mapping[str, object]) -> list[Trial]:
    return list(map(trial_of, query.rows(tx.connection, given)))


def _found(tx: Transaction, query: sa.Select[Any]) -> list[Trial]:
    return list(map(trial_of, tx.connection.execute(query).all()))


def _point(row: Sequence[Any]) -> Point:
    number, specialist, status, *rest = row
    return Point(number, specialist, status and TrialStatus(status), *rest)
