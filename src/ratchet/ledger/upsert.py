"""Insert or else update, made ready for both databases: building such a statement takes longer than running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def upserts(
    table: sa.Table,
    key: Sequence[str],
    change: Callable[[Any], Mapping[str, Any]],
    *,
    returning: Sequence[sa.Column[Any]] = (),
) -> dict[str, sa.Executable]:
    """By the name of the dialect: insert a row or, where its `key` is taken, change the one that is there.

    `change` is given the columns of the row that could not be inserted.
    """
    made: dict[str, sa.Executable] = {}
    for name, insert in (("sqlite", sqlite.insert(table)), ("postgresql", postgresql.insert(table))):
        statement = insert.on_conflict_do_update(index_elements=list(key), set_=change(insert.excluded))
        made[name] = statement.returning(*returning) if returning else statement
    return made
