"""Everything that a prompt names of a run, in one statement: each part of it is a page from the end of one index."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger.tables import lessons, trial_tallies
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trial_pages import (
    Key,
    kept_keys,
    line_keys,
    missed_keys,
    told_child_keys,
    tried_keys,
    tried_keys_of_one,
)

_STATUSES = {str(status): status for status in TrialStatus}
# What a row of the statement is a part of.
_TALLY, _OWN, _RECENT, _KEPT, _MISSED, _LINE, _CHILDREN, _LESSONS = range(8)


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
        pages: tuple[list[Key], ...] = tuple([] for _ in range(_LESSONS + 1))
        for part, number, at, status in tx.connection.execute(self._statements[direction], given).all():
            if part == _TALLY:
                ended[_STATUSES[status]] += number
            else:
                pages[part].append((number, at))
        # No database promises an order of what is put together.
        for page in pages:
            page.sort(reverse=True)
        return Named(
            ended=ended,
            own=pages[_OWN],
            recent=pages[_RECENT],
            kept=pages[_KEPT],
            missed=pages[_MISSED],
            line=pages[_LINE],
            children=pages[_CHILDREN],
            lessons=[number for number, _ in pages[_LESSONS]],
        )


def _statement(lengths: Lengths, direction: Direction) -> sa.CompoundSelect[Any]:
    tallies = sa.select(
        _number(_TALLY), trial_tallies.c["count"], sa.null(), trial_tallies.c.status.label("status")
    ).where(trial_tallies.c.run_id == sa.bindparam("run"))
    newest = (
        sa.select(lessons.c.id, lessons.c.at)
        .where(lessons.c.run_id == sa.bindparam("run"))
        .order_by(lessons.c.id.desc())
        .limit(_number(lengths.lessons))
    )
    pages: dict[int, sa.Select[Any]] = {
        _OWN: tried_keys_of_one(_number(lengths.own)),
        _RECENT: tried_keys(_number(lengths.recent)),
        _KEPT: kept_keys(_number(lengths.kept)),
        _MISSED: missed_keys(direction, _number(lengths.missed)),
        _LINE: line_keys(_number(lengths.line)),
        _CHILDREN: told_child_keys(_number(lengths.children), within=_number(2 * (lengths.children + 1))),
        _LESSONS: newest,
    }
    return sa.union_all(tallies, *(_part(part, page) for part, page in pages.items()))


def _part(part: int, page: sa.Select[Any]) -> sa.Select[Any]:
    """A page of its own, since its end must not become the end of what is put together."""
    whole = page.subquery()
    return sa.select(_number(part), *whole.c, sa.null())


def _number(number: int) -> sa.ColumnElement[int]:
    """Written out: a database plans better for a number than for a parameter."""
    return sa.literal_column(str(number), sa.Integer)
