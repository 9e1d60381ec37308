"""Giving back the room that is no longer used."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger.database import translated
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import artifacts, processes


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed."""

    rows: int
    files: int
    bytes: int


def collect_artifacts(ledger: Ledger, *, grace_seconds: float, expire_before: int | None = None) -> Collected:
    """Forget artifacts created before `expire_before` (never pinned ones), then delete files that nobody names.

    Rows go first and are committed: a crash in between leaves files without rows, which the next collection takes,
    never rows without files. A file younger than the grace period stays, since its row may be on its way.
    """
    rows = 0
    if expire_before is not None:
        with ledger.write(actor="collector") as tx:
            expired = sa.delete(artifacts).where(
                artifacts.c.created_at < expire_before, artifacts.c.pinned.is_(sa.false())
            )
            rows = tx.connection.execute(expired).rowcount
            if rows:
                tx.event("artifacts.expired", data={"count": rows, "created_before": expire_before})
    files, size = ledger.artifacts.remove_unnamed(
        lambda sha256: _named(ledger, sha256), grace_seconds=grace_seconds
    )
    return Collected(rows=rows, files=files, bytes=size)


def _named(ledger: Ledger, sha256: str) -> bool:
    with ledger.read() as tx:
        query = sa.select(sa.literal(1)).where(artifacts.c.sha256 == sha256).limit(1)
        return tx.connection.execute(query).first() is not None


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
