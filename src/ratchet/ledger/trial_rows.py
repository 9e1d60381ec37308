"""A trial as its row has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import TrialStatus, exp_id
from ratchet.ledger._columns import Json
from ratchet.ledger.tables import trials

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

    The pages of `kept_lines`, `tried_trials`, `near_misses`, `children` and `ancestors` leave out `proposal`,
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


def trial_of(row: Sequence[Any]) -> Trial:
    return Trial._make((*row[:_STATUS], _STATUSES[row[_STATUS]], *row[_STATUS + 1 :]))
