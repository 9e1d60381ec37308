"""Pages of trials, as views and prompts show them. Each reads a bounded page from the end of one index."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import Direction, NotFound, TrialStatus, exp_id
from ratchet.ledger.tables import lessons, trial_tallies, trials
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trials import ALL, LINES, Trial, TrialOrigin, trial_of

Key = tuple[int, int | None]
Most = int | sa.ColumnElement[int]
Keys = sa.Select[Any]

OF_RUN = trials.c.run_id == sa.bindparam("run")
# Word for word the conditions of the partial indexes: a database sees no other wording, and no parameter, as the same.
KEPT = sa.text("status IN ('baseline', 'keep')")
_MISSED = sa.text("score IS NOT NULL AND status NOT IN ('baseline', 'keep', 'infra_error', 'harness_abort')")
_KEYS = sa.select(trials.c.number, trials.c.ended_at)
_CHILD = trials.c.parent == sa.bindparam("of")
_NEWEST_FIRST = trials.c.number.desc()
# How far back a page looks for trials that tell something, where it must pass over others.
_WITHIN = 500


def tried_keys(most: Most) -> Keys:
    """The newest trials that tell something about an idea, out of a bounded page."""
    return _tried_within(_KEYS.where(OF_RUN), _WITHIN).limit(most)


def tried_keys_of_one(most: Most) -> Keys:
    """The same of the specialist `name`."""
    return _tried_within(_KEYS.where(OF_RUN, trials.c.specialist == sa.bindparam("name")), _WITHIN).limit(
        most
    )


def kept_keys(most: Most, *conditions: sa.ColumnElement[bool]) -> Keys:
    return _KEYS.where(OF_RUN, KEPT, *conditions).order_by(_NEWEST_FIRST).limit(most)


def missed_keys(direction: Direction, most: Most) -> Keys:
    best_first = trials.c.score.desc() if direction is Direction.MAX else trials.c.score.asc()
    return _KEYS.where(OF_RUN, _MISSED).order_by(best_first).limit(most)


def child_keys(most: Most) -> Keys:
    """The newest children of the trial `of`."""
    return _KEYS.where(OF_RUN, _CHILD).order_by(_NEWEST_FIRST).limit(most)


def tried_child_keys(most: Most, within: Most) -> Keys:
    """The newest children of the trial `of` that tell something about an idea, out of a bounded page."""
    return _tried_within(_KEYS.where(OF_RUN, _CHILD), within).limit(most)


def line_keys(most: Most) -> Keys:
    """The trial `of` and those that it came from, itself first."""
    one = sa.literal_column("1", sa.Integer)
    start = (
        sa.select(trials.c.number, trials.c.ended_at, trials.c.parent, one.label("place"))
        .where(OF_RUN, trials.c.number == sa.bindparam("of"))
        .cte("line", recursive=True)
    )
    # An imported row may have a parent that came later; no line is longer than was asked for.
    line = start.union_all(
        sa.select(trials.c.number, trials.c.ended_at, trials.c.parent, start.c.place + one).where(
            OF_RUN,
            trials.c.number == start.c.parent,
            start.c.place < most,
        )
    )
    return sa.select(line.c.number, line.c.ended_at).order_by(line.c.place)


def _tried_within(page: Keys, within: Most) -> Keys:
    newest = page.add_columns(trials.c.status).order_by(_NEWEST_FIRST).limit(within).subquery()
    untried = [newest.c.status == str(status) for status in TrialStatus if not status.tried]
    tried = newest.c.status.is_(None) | sa.not_(sa.or_(*untried))
    return sa.select(newest.c.number, newest.c.ended_at).where(tried)


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


_MOST = sa.bindparam("most", type_=sa.Integer)
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
_LINE = line_keys(_MOST)
_CHILDREN = child_keys(_MOST)
# Above every number that a trial can have.
_ENDLESS = 2**31 - 1
_BEFORE = trials.c.number < sa.bindparam("before")
_KEPT_LAST = ALL.where(OF_RUN, KEPT, _BEFORE).order_by(trials.c.number.desc()).limit(_MOST)
_KEPT_LINES = kept_keys(_MOST, _BEFORE)
_NEAREST = {direction: (missed_keys(direction, _MOST)) for direction in Direction}
_KEPT_SCORES = (
    sa.select(trials.c.number, trials.c.score, trials.c.ended_at)
    .where(OF_RUN, KEPT, _BEFORE)
    .order_by(trials.c.number.desc())
    .limit(_MOST)
)
_BRANCHES = (
    sa.select(trials.c.number, trials.c.parent, trials.c.status, trials.c.score, trials.c.specialist)
    .where(OF_RUN, trials.c.number > sa.bindparam("after"))
    .order_by(trials.c.number)
    .limit(_MOST)
)
_FLYING = ALL.where(OF_RUN, trials.c.status.is_(None)).order_by(trials.c.number)
_TALLIES = (
    sa.select(trial_tallies.c.specialist, trial_tallies.c.status, trial_tallies.c["count"])
    .where(trial_tallies.c.run_id == sa.bindparam("run"))
    .order_by(trial_tallies.c.specialist, trial_tallies.c.status)
)
_TRIED = tried_keys(_MOST)
_TRIED_BY = tried_keys_of_one(_MOST)


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


class TrialBranch(NamedTuple):
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
    return list(map(KeptScore._make, tx.connection.execute(_KEPT_SCORES, _page(run_id, before, limit)).all()))


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


def branches_after(tx: Transaction, run_id: int, after: int = -1, *, limit: int = 5000) -> list[TrialBranch]:
    """Where the trials with a number above `after` branch off, oldest first, a page at a time."""
    rows = tx.connection.execute(_BRANCHES, {"run": run_id, "after": after, "most": limit}).all()
    return list(map(TrialBranch._make, rows))


def trial_origins(tx: Transaction, run_id: int, *, measured: bool = False) -> list[TrialOrigin]:
    """Every trial of a run in the order in which they ended, those in flight last: for who begins to carry it.

    `measured` says whether also what was measured of them is wanted.
    """
    wanted = trials.c.measurements if measured else sa.null()
    columns = [wanted if name == "measurements" else trials.c[name] for name in TrialOrigin._fields]
    rows = tx.connection.execute(sa.select(*columns).where(trials.c.run_id == run_id))
    found = (TrialOrigin._make((*row[:3], row[3] and TrialStatus(row[3]), *row[4:])) for row in rows)
    return sorted(found, key=lambda each: (math.inf if each.ended_at is None else each.ended_at, each.number))


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
    for specialist, status, count in tx.connection.execute(_TALLIES, {"run": run_id}).all():
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


def _lines(tx: Transaction, query: sa.Select[Any], given: Mapping[str, Any]) -> list[Trial]:
    return trial_lines(tx, given["run"], tx.connection.execute(query, given).all())


def _ready(tx: Transaction, query: sa.Select[Any], given: Mapping[str, object]) -> list[Trial]:
    return list(map(trial_of, tx.connection.execute(query, given).all()))


def _found(tx: Transaction, query: sa.Select[Any]) -> list[Trial]:
    return list(map(trial_of, tx.connection.execute(query).all()))


def _point(row: Sequence[Any]) -> Point:
    number, specialist, status, *rest = row
    return Point(number, specialist, status and TrialStatus(status), *rest)


_STATUSES = {str(status): status for status in TrialStatus}
# What a row of the statement is a part of.
_PART_TALLY, _PART_OWN, _PART_RECENT, _PART_KEPT, _PART_MISSED, _PART_LINE, _PART_CHILDREN, _PART_LESSONS = (
    range(8)
)


class Named(NamedTuple):
    """Newest first, but `missed` in no order. `ended` counts how the trials of all specialists ended.

    `own` and `recent` are without those that tell nothing about an idea, and so are `children`. `kept` has the baseline
    among them. `line` is a trial and what it came from. `lessons` are the numbers of lessons.
    """

    ended: dict[TrialStatus, int]
    own: list[Key]
    recent: list[Key]
    kept: list[Key]
    missed: list[Key]
    line: list[Key]
    children: list[Key]
    lessons: list[int]

    def trials(self) -> set[Key]:
        """All of them, each once."""
        return {*self.own, *self.recent, *self.kept, *self.missed, *self.line, *self.children}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many of each there are at most."""

    own: int
    recent: int
    kept: int
    missed: int
    line: int
    children: int
    lessons: int


class LineagePage:
    """What a prompt names, up to these lengths, which are part of the statement: so it is planned for them."""

    def __init__(self, lengths: Lengths) -> None:
        self._statements = {direction: (_statement(lengths, direction)) for direction in Direction}

    def read(
        self, tx: Transaction, run_id: int, *, specialist: str, focus: int, direction: Direction
    ) -> Named:
        """`own` are the trials of `specialist`; `line` and `children` are those of the trial `focus`."""
        given = {"run": run_id, "name": specialist, "of": focus}
        ended: dict[TrialStatus, int] = defaultdict(int)
        pages: tuple[list[Key], ...] = tuple([] for _ in range(_PART_LESSONS + 1))
        for part, number, at, status in tx.connection.execute(self._statements[direction], given).all():
            if part == _PART_TALLY:
                ended[_STATUSES[status]] += number
            else:
                pages[part].append((number, at))
        # No database promises an order of what is put together.
        for page in pages:
            page.sort(reverse=True)
        return Named(
            ended=ended,
            own=pages[_PART_OWN],
            recent=pages[_PART_RECENT],
            kept=pages[_PART_KEPT],
            missed=pages[_PART_MISSED],
            line=pages[_PART_LINE],
            children=pages[_PART_CHILDREN],
            lessons=[number for number, _ in pages[_PART_LESSONS]],
        )


def _statement(lengths: Lengths, direction: Direction) -> sa.CompoundSelect[Any]:
    tallies = sa.select(
        _number(_PART_TALLY), trial_tallies.c["count"], sa.null(), trial_tallies.c.status.label("status")
    ).where(trial_tallies.c.run_id == sa.bindparam("run"))
    newest = (
        sa.select(lessons.c.id, lessons.c.at)
        .where(lessons.c.run_id == sa.bindparam("run"))
        .order_by(lessons.c.id.desc())
        .limit(_number(lengths.lessons))
    )
    pages: dict[int, sa.Select[Any]] = {
        _PART_OWN: tried_keys_of_one(_number(lengths.own)),
        _PART_RECENT: tried_keys(_number(lengths.recent)),
        _PART_KEPT: kept_keys(_number(lengths.kept)),
        _PART_MISSED: missed_keys(direction, _number(lengths.missed)),
        _PART_LINE: line_keys(_number(lengths.line)),
        _PART_CHILDREN: tried_child_keys(
            _number(lengths.children), within=_number(2 * (lengths.children + 1))
        ),
        _PART_LESSONS: newest,
    }
    return sa.union_all(tallies, *(_part(part, page) for part, page in pages.items()))


def _part(part: int, page: sa.Select[Any]) -> sa.Select[Any]:
    """A page of its own, since its end must not become the end of what is put together."""
    whole = page.subquery()
    return sa.select(_number(part), *whole.c, sa.null())


def _number(number: int) -> sa.ColumnElement[int]:
    """Written out: a database plans better for a number than for a parameter."""
    return sa.literal_column(str(number), sa.Integer)
