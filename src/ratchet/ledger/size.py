"""How large a ledger is, told without reading it."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.ledger.counters import counters
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.schema import current_revision


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """`given` is the last number given in each numbered table: how many rows there ever were."""

    database: str
    bytes: int
    schema: str | None
    given: dict[str, int]


def ledger_size(ledger: Ledger) -> LedgerSize:
    with ledger.read() as tx:
        connection = tx.connection
        given = counters(connection)
        schema = current_revision(connection)
        if connection.dialect.name == "postgresql":
            version = connection.exec_driver_sql("SHOW server_version").scalar_one()
            size = connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
            return LedgerSize(f"PostgreSQL {version}", int(size), schema, given)
        version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    files = [ledger.path, ledger.path.with_name(f"{ledger.path.name}-wal")] if ledger.path else []
    size = sum(each.stat().st_size for each in files if each.exists())
    return LedgerSize(f"SQLite {version}", size, schema, given)
