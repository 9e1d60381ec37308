"""Keeping one order between what SQLAlchemy runs on a PostgreSQL connection and what waits on its line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa
from sqlalchemy import event, exc

from ratchet.ledger.line import Refused, line_of
from ratchet.ledger.prepared import Prepared, translated

if TYPE_CHECKING:
    from ratchet.ledger.postgresql_line import PostgresqlLine

_COMMIT = Prepared(sa.text("COMMIT"))


def join_lines(engine: sa.Engine) -> None:
    """Send what waits before SQLAlchemy runs a statement and with the commit, and forget it with a rollback."""

    @event.listens_for(engine, "before_cursor_execute")
    def send(connection: sa.Connection, *_statement: Any) -> None:
        try:
            _line(connection).send()
        except Refused as refused:
            raise translated(connection, refused) from refused.error

    @event.listens_for(engine, "commit")
    def commit(connection: sa.Connection) -> None:
        line = _line(connection)
        if line.failed:
            # The server would roll back, and not call that an error.
            raise exc.PendingRollbackError(
                "a statement of this transaction has failed: it cannot be committed"
            )
        # With what waits in one round trip; the driver then finds nothing left to commit.
        if line.begun:
            _COMMIT.rows(connection)

    @event.listens_for(engine, "rollback")
    def forget(connection: sa.Connection) -> None:
        if not connection.invalidated:
            _line(connection).forget()


def _line(connection: sa.Connection) -> PostgresqlLine:
    return cast("PostgresqlLine", line_of(connection))
