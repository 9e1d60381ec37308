"""Inserts that say what to do on a conflict. A dialect that is not used is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def insert_into(table: sa.Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say what to do on a conflict."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def upsert(
    table: sa.Table,
    key: Sequence[str],
    change: Callable[[Any], Mapping[str, Any]],
    *,
    returning: Sequence[sa.Column[Any]] = (),
) -> Callable[[str], sa.Executable]:
    """For the name of a dialect: insert a row or, where its `key` is taken, change the one that is there.

    `change` is given the columns of the row that could not be inserted. It is built once for each dialect.
    """

    @cache
    def build(dialect: str) -> sa.Executable:
        insert = insert_into(table, dialect)
        statement = insert.on_conflict_do_update(index_elements=list(key), set_=change(insert.excluded))
        return statement.returning(*returning) if returning else statement

    return build
