"""Giving back the room that is no longer used."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger.database import translated
from ratchet.ledger.garbage import Collected, collect_artifacts
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import processes


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What was given back. `in_the_way` names the processes for whose sake the database file could not shrink."""

    artifacts: Collected
    database_bytes: int
    in_the_way: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.artifacts.bytes + self.database_bytes


def vacuum(
    ledger: Ledger,
    *,
    grace_seconds: float,
    expire_before: int | None = None,
    patience_seconds: float = 10.0,
) -> VacuumReport:
    """Collect artifacts by the rule of `collect_artifacts`, then compact the database. Others may go on working.

    Raises `LedgerUnavailable`, naming who works on the ledger, when a writer does not let go of a SQLite file within
    `patience_seconds`; the artifacts are collected by then.
    """
    collected = collect_artifacts(ledger, grace_seconds=grace_seconds, expire_before=expire_before)
    before = _size(ledger)
    whole = _compact_postgresql(ledger) if ledger.path is None else _compact_sqlite(ledger, patience_seconds)
    return VacuumReport(
        artifacts=collected,
        database_bytes=max(0, before - _size(ledger)),
        in_the_way=() if whole else _at_work(ledger),
    )


def _compact_sqlite(ledger: Ledger, patience_seconds: float) -> bool:
    """Whether the log could be emptied, too: not while somebody reads an older state."""
    with translated(ledger.url), ledger.engine.connect() as connection:
        own = connection.execution_options(isolation_level="AUTOCOMMIT")
        own.detach()  # its settings are not for the pool
        own.exec_driver_sql(f"PRAGMA busy_timeout={int(patience_seconds * 1000)}")
        try:
            own.exec_driver_sql("VACUUM")
        except sa.exc.OperationalError as error:
            if "locked" not in str(error.orig):
                raise
            who = ", ".join(_at_work(ledger)) or "no process that says so"
            raise LedgerUnavailable(
                f"the ledger is being written and cannot be compacted; at work: {who}",
                hint="try again when they are idle; nothing was lost",
            ) from error
        busy, _, _ = own.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
    return not busy


def _compact_postgresql(ledger: Ledger) -> bool:
    with translated(ledger.url), ledger.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM (ANALYZE)")
    return True


def _size(ledger: Ledger) -> int:
    """The bytes of the database with its log."""
    if ledger.path is not None:
        files = (ledger.path, ledger.path.with_name(ledger.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
    with ledger.read() as tx:
        return int(tx.connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())


def _at_work(ledger: Ledger) -> tuple[str, ...]:
    with ledger.read() as tx:
        alive = sa.select(processes.c.id).where(processes.c.state.in_(["alive", "draining"]))
        return tuple(tx.connection.execute(alive.order_by(processes.c.id)).scalars())
