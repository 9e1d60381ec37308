"""The counters that number rows. They only rise: a number that was given once is never given again."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger.tables import metadata

NUMBERED = tuple(table for table in metadata.sorted_tables if table.autoincrement_column is not None)


def counters(connection: sa.Connection) -> dict[str, int]:
    """The last number given in each numbered table; 0 where none was."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        given: dict[str, int] = {row.name: row.seq for row in rows}
        return {table.name: given.get(table.name, 0) for table in NUMBERED}
    last = sa.text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:table, 'id')::regclass)")
    return {table.name: connection.execute(last, {"table": table.name}).scalar() or 0 for table in NUMBERED}


def raise_counter(connection: sa.Connection, table: str, number: int) -> None:
    """Let the next row of `table` have a number above `number`."""
    if number <= counters(connection)[table]:
        return
    values = {"table": table, "number": number}
    if connection.dialect.name == "sqlite":
        # The table has no key to conflict on.
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), values)
        connection.execute(
            sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :number)"), values
        )
    else:
        connection.execute(sa.text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :number)"), values)
