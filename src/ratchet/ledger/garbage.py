"""Collecting artifacts that the rules no longer keep."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import artifacts


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
