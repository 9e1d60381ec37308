"""Which trials are on a page: the number of each and when it ended, from the end of one index.

A trial changes until it has ended and then no more, so these two tell whether it is still as it was.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger.tables import trials

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
    return _told(_KEYS.where(OF_RUN), _WITHIN).limit(most)


def tried_keys_of_one(most: Most) -> Keys:
    """The same of the specialist `name`."""
    return _told(_KEYS.where(OF_RUN, trials.c.specialist == sa.bindparam("name")), _WITHIN).limit(most)


def kept_keys(most: Most, *conditions: sa.ColumnElement[bool]) -> Keys:
    return _KEYS.where(OF_RUN, KEPT, *conditions).order_by(_NEWEST_FIRST).limit(most)


def missed_keys(direction: Direction, most: Most) -> Keys:
    best_first = trials.c.score.desc() if direction is Direction.MAX else trials.c.score.asc()
    return _KEYS.where(OF_RUN, _MISSED).order_by(best_first).limit(most)


def child_keys(most: Most) -> Keys:
    """The newest children of the trial `of`."""
    return _KEYS.where(OF_RUN, _CHILD).order_by(_NEWEST_FIRST).limit(most)


def told_child_keys(most: Most, within: Most) -> Keys:
    """The newest children of the trial `of` that tell something about an idea, out of a bounded page."""
    return _told(_KEYS.where(OF_RUN, _CHILD), within).limit(most)


def line_keys(most: Most) -> Keys:
    """The trial `of` and those that it came from, itself first."""
    one = sa.literal_column("1", sa.Integer)
    start = (
        sa.select(trials.c.number, trials.c.ended_at, trials.c.parent, one.label("place"))
        .where(OF_RUN, trials.c.number == sa.bindparam("of"))
        .cte("line", recursive=True)
    )
    # Parents come before children; an imported row that says otherwise ends the line.
    line = start.union_all(
        sa.select(trials.c.number, trials.c.ended_at, trials.c.parent, start.c.place + one).where(
            OF_RUN,
            trials.c.number == start.c.parent,
            trials.c.number < start.c.number,
            start.c.place < most,
        )
    )
    return sa.select(line.c.number, line.c.ended_at).order_by(line.c.place)


def _told(page: Keys, within: Most) -> Keys:
    newest = page.add_columns(trials.c.status).order_by(_NEWEST_FIRST).limit(within).subquery()
    untold = [newest.c.status == str(status) for status in TrialStatus if not status.tried]
    told = newest.c.status.is_(None) | sa.not_(sa.or_(*untold))
    return sa.select(newest.c.number, newest.c.ended_at).where(told)
