"""The ledger: one database and the files beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from sqlalchemy import exc

from ratchet.ledger.artifacts import ArtifactStore
from ratchet.ledger.bell import Bell
from ratchet.ledger.database import (
    begin_reading,
    begin_writing,
    make_engine,
    refuse_failed,
    sqlite_path,
    translated,
)
from ratchet.ledger.schema import ensure_schema
from ratchet.ledger.transaction import Remembered, Transaction


class Ledger:
    """Reads and writes in transactions. Safe to share between threads; open one per process."""

    def __init__(self, url: str, artifacts: Path) -> None:
        self.url = url
        self.path = sqlite_path(url)
        self.engine = make_engine(url)
        self.artifacts = ArtifactStore(artifacts, self.read)
        self.bell = Bell(url)
        self._remembered = Remembered()

    @classmethod
    def open(cls, url: str, artifacts: Path) -> Ledger:
        """Open the ledger at `url`, making or upgrading it as needed.

        Raises `LedgerCorrupt`, `LedgerTooNew` or `LedgerUnavailable`; each says what to do.
        """
        ledger = cls(url, artifacts)
        if ledger.path is not None:
            with contextlib.suppress(OSError):  # an unwritable place is explained by the database's own error
                ledger.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with translated(url):
                ensure_schema(ledger.engine)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @contextlib.contextmanager
    def write(self, *, actor: str = "ratchet", request_id: str | None = None) -> Iterator[Transaction]:
        """A transaction that may write. It commits when the block ends and rolls back when the block raises.

        Everybody sees it then, whatever dies, and it outlasts a power cut.
        """
        with translated(self.url), self.engine.connect() as connection:
            begin_writing(connection)
            tx = Transaction(connection, self.artifacts, self._remembered, actor=actor, request_id=request_id)
            try:
                yield tx
                appended = tx.flush()
                refuse_failed(connection)
                connection.commit()
            except BaseException:
                with contextlib.suppress(exc.DBAPIError):  # the first error is the one to tell
                    connection.rollback()
                raise
        _count(appended)
        for topic in tx.topics:
            self.bell.ring(topic)
        tx.run_after_commit()

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that sees one moment of the ledger and writes nothing."""
        with translated(self.url), self.engine.connect() as connection:
            begin_reading(connection)
            yield Transaction(connection, self.artifacts, self._remembered, actor="reader", request_id=None)
            # Not rolled back: the driver would forget the statements that it has prepared.
            connection.commit()

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def _count(events: int) -> None:
    # Loaded here: most commands only read.
    from ratchet.observe import metrics

    metrics.events_appended.inc(events)
