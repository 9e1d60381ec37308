"""Putting a backup back, into either database."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import Conflict, LedgerCorrupt, LedgerUnavailable, NotFound
from ratchet.ledger.artifacts import INLINE_BYTES
from ratchet.ledger.backup._format import CHUNK_BYTES, TABLES, Contents
from ratchet.ledger.backup._reader import Row, Visitor, read
from ratchet.ledger.counters import raise_counter
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.tables import artifact_contents, artifacts, jobs, processes
from ratchet.ledger.transaction import Transaction

# The one row of `processes` that is no process: it keeps the sums of those that are gone.
_RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was put back. `left_out` are artifacts that were lost before the backup was taken."""

    taken_at: int
    ratchet_version: str
    rows: dict[str, int]
    artifacts: int
    artifact_bytes: int
    left_out: tuple[str, ...]


def restore(
    ledger: Ledger, source: Path, *, force: bool = False, dead_after_seconds: float = 60.0
) -> RestoreReport:
    """Make the ledger what it was when the backup `source` was taken.

    The whole file is checked before anything changes. Then all rows change in one transaction: after a crash the ledger
    is as it was, and restoring may be repeated. The processes of the old world are forgotten; the jobs they had are
    handed on by the first worker that starts, as those of any unknown process.

    Raises `Conflict` when the ledger holds something and `force` is not given, or, always, while processes work on it
    (heard of within `dead_after_seconds`); `LedgerCorrupt` when the backup is damaged; `LedgerTooNew` when it is from
    a newer Ratchet.
    """
    with ledger.read() as tx:
        _refuse(tx, force, dead_after_seconds)
    try:
        with source.open("rb") as file:
            return _restore(ledger, file, source, force, dead_after_seconds)
    except OSError as error:
        raise LedgerUnavailable(
            f"the backup {source} could not be read: {error}", hint="is it there, and may this user read it?"
        ) from error


def _restore(
    ledger: Ledger, file: BinaryIO, source: Path, force: bool, dead_after_seconds: float
) -> RestoreReport:
    look = _Look(ledger)
    manifest, contents = read(file, source, Visitor(rows=lambda _table, _rows: None, artifact=look.artifact))
    look.check_room()
    # Held until the rows are committed: no collector takes a file that no row names yet.
    with ledger.artifacts.held(), ledger.write(actor="restore") as tx:
        _be_alone(tx)
        _refuse(tx, force, dead_after_seconds)
        newest = tx.connection.execute(sa.select(sa.func.max(jobs.c.delivery))).scalar() or 0
        for table in reversed(TABLES):
            tx.connection.execute(sa.delete(table))
        again = read(
            file,
            source,
            Visitor(
                rows=lambda table, rows: _insert(tx, table, rows),
                artifact=lambda _sha256, size, stream: _put_back(ledger, tx, size, stream),
            ),
        )
        if again != (manifest, contents):
            raise LedgerCorrupt(
                f"{source} was changed while it was restored", hint="the ledger was not changed"
            )
        _check_files(tx, ledger, contents, source)
        _outdate_leases(tx, newest)
        for name, number in manifest.counters.items():
            raise_counter(tx.connection, name, number)
        data = {"taken_at": manifest.taken_at, "by": manifest.ratchet_version, "rows": contents.rows()}
        tx.event("ledger.restored", message=source.name, data=data)
    return RestoreReport(
        taken_at=manifest.taken_at,
        ratchet_version=manifest.ratchet_version,
        rows=contents.rows(),
        artifacts=contents.artifacts,
        artifact_bytes=contents.artifact_bytes,
        left_out=tuple(contents.left_out),
    )


class _Look:
    """The first reading: it only checks, and adds up the room that is needed."""

    def __init__(self, ledger: Ledger) -> None:
        self._store = ledger.artifacts
        self._needed = 0

    def artifact(self, sha256: str, size: int, stream: BinaryIO) -> str:
        digest = hashlib.sha256()
        for chunk in _chunks(stream):
            digest.update(chunk)
        if size > INLINE_BYTES and digest.hexdigest() == sha256 and not self._store.path(sha256).exists():
            self._needed += size
        return digest.hexdigest()

    def check_room(self) -> None:
        place = self._store.root
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        if self._needed > free:
            raise LedgerUnavailable(
                f"the backup's artifacts need {self._needed} bytes, but {place} has {free} left",
                hint="free some space, then restore; the ledger was not changed",
            )


def _be_alone(tx: Transaction) -> None:
    """Keep all other writers out until the end; on SQLite a writer is alone anyway."""
    if tx.on_postgresql:
        names = ", ".join(table.name for table in TABLES)
        tx.connection.execute(sa.text("SET LOCAL lock_timeout = '30s'"))
        tx.connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        tx.connection.execute(sa.text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _refuse(tx: Transaction, force: bool, dead_after_seconds: float) -> None:
    heard = sa.select(processes.c.id).where(
        processes.c.id != _RETIRED,
        processes.c.state != "dead",
        processes.c.beat_at > tx.now - int(dead_after_seconds * 1000),
    )
    living = list(tx.connection.execute(heard.order_by(processes.c.id)).scalars())
    if living:
        raise Conflict(
            f"processes are working on this ledger: {', '.join(living)}",
            hint=f"stop them first; one that was killed counts as gone after {dead_after_seconds:g} s",
        )
    filled = [
        table.name
        for table in TABLES
        if table is not processes
        and tx.connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first()
    ]
    if filled and not force:
        raise Conflict(
            f"the ledger is not empty: it has {', '.join(filled)}",
            hint="restore with --force to replace all of it; take a backup first",
        )


def _insert(tx: Transaction, table: sa.Table, rows: list[Row]) -> None:
    wanted = rows if table is not processes else [row for row in rows if row["id"] == _RETIRED]
    if not wanted:
        return
    try:
        tx.connection.execute(sa.insert(table), wanted)
    except exc.IntegrityError as error:
        raise LedgerCorrupt(
            f"the backup contradicts itself in {table.name}: {error.orig}",
            hint="use another one; the ledger was not changed",
        ) from error


def _put_back(ledger: Ledger, tx: Transaction, size: int, stream: BinaryIO) -> str:
    """Put the content of artifacts where one of its size belongs; its hash."""
    if size > INLINE_BYTES:
        return ledger.artifacts.keep(_chunks(stream), renew=True)[0]
    content = stream.read()
    sha256 = hashlib.sha256(content).hexdigest()
    named = sa.select(artifacts.c.id, sa.literal(content, sa.LargeBinary)).where(artifacts.c.sha256 == sha256)
    tx.connection.execute(sa.insert(artifact_contents).from_select(["artifact_id", "content"], named))
    return sha256


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def _check_files(tx: Transaction, ledger: Ledger, contents: Contents, source: Path) -> None:
    lost = set(contents.left_out)
    query = (
        sa.select(artifacts.c.sha256)
        .outerjoin(artifact_contents, artifact_contents.c.artifact_id == artifacts.c.id)
        .where(artifact_contents.c.artifact_id.is_(None))
        .distinct()
        .order_by(artifacts.c.sha256)
    )
    for sha256 in tx.connection.execute(query, execution_options={"yield_per": 1000}).scalars():
        if sha256 not in lost and not _is_there(ledger, sha256):
            raise LedgerCorrupt(
                f"{source} is not a usable backup: artifact {sha256} is named but not in it",
                hint="use another one; the ledger was not changed",
            )


def _is_there(ledger: Ledger, sha256: str) -> bool:
    try:
        return ledger.artifacts.path(sha256).exists()
    except NotFound:
        return False


def _outdate_leases(tx: Transaction, newest: int) -> None:
    """A worker may still hold a job of the world that is gone: let it write nothing in this one."""
    tx.connection.execute(
        sa.update(jobs).where(jobs.c.ended_at.is_(None)).values(delivery=jobs.c.delivery + newest)
    )
