"""One transaction: what is read, written and said to have happened together."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.files import NewFile, write_files
from ratchet.kernel import LedgerUnavailable, Misuse
from ratchet.ledger import events
from ratchet.ledger._columns import to_json
from ratchet.ledger.database import now_ms
from ratchet.ledger.events import Topic, channel

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    from ratchet.ledger.artifacts import ArtifactStore


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


_MOST = 4096
_FORGOTTEN_AT_ONCE = 512


class Remembered:
    """Values by a key that says all that could be different about them. Those that came first are forgotten first."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        # Whoever forgets goes through the values.
        self._lock = threading.Lock()

    def several(self, keys: Iterable[Hashable]) -> list[Any]:
        """The values of these keys in their order, `None` for one that is not known."""
        return list(map(self._values.get, keys))

    def add(self, values: Mapping[Hashable, Any]) -> None:
        with self._lock:
            self._values.update(values)
            while len(self._values) > _MOST:
                for key in list(itertools.islice(self._values, _FORGOTTEN_AT_ONCE)):
                    del self._values[key]


_LOCK = sa.text("SELECT pg_advisory_xact_lock(:key)")
_SHARE = sa.text("SELECT pg_advisory_xact_lock_shared(:key)")
_TRY_LOCK = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
_NOTIFY = sa.text("SELECT pg_notify(:channel, '')")
# An event longer than this keeps its data in the artifact store; the event says where.
INLINE_BYTES = 64 * 1024


class Transaction:
    """Work in progress on the ledger, made by `Ledger.write` and `Ledger.read`.

    Events are gathered and appended as one batch when the block ends, in the same commit as everything else.
    """

    def __init__(
        self,
        connection: sa.Connection,
        artifacts: ArtifactStore,
        remembered: Remembered,
        *,
        actor: str,
        request_id: str | None,
        now: int | None = None,
    ) -> None:
        self.connection = connection
        self.remembered = remembered
        self.actor = actor
        self.request_id = request_id
        self.now = now_ms() if now is None else now
        self._artifacts = artifacts
        self._events: list[dict[str, Any]] = []
        self._after_commit: list[Callable[[], object]] = []
        self.topics: set[Topic] = set()
        self._files: dict[str, NewFile] = {}

    @property
    def dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def on_postgresql(self) -> bool:
        return self.dialect == "postgresql"

    def event(
        self,
        type: str,
        *,
        message: str | None = None,
        data: Any = None,
        project_id: int | None = None,
        run_id: int | None = None,
        step_id: int | None = None,
        attempt_id: int | None = None,
        job_id: int | None = None,
    ) -> None:
        """Say that something happened."""
        self._events.append(
            {
                "at": self.now,
                "type": type,
                "actor": self.actor,
                "request_id": self.request_id,
                "named_project": project_id,
                "run_id": run_id,
                "of_run": run_id,
                "step_id": step_id,
                "attempt_id": attempt_id,
                "job_id": job_id,
                "message": message,
                "json": None if data is None else self._inline(data, run_id, attempt_id),
            }
        )

    def add_file(self, file: NewFile) -> None:
        """Write a small file that rows of the transaction tell of; it is on disk before they are committed.

        If the transaction fails after that, the file stays: nobody tells of it.
        """
        self._files[file.name] = file

    def after_commit(self, call: Callable[[], object]) -> None:
        """Call this once the transaction is committed; not at all if it is rolled back."""
        self._after_commit.append(call)

    def announce(self, topic: Topic) -> None:
        """Ring the bell for `topic` when the transaction is committed."""
        self.topics.add(topic)

    def insert(self, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
        """An insert that can say what to do on a conflict."""
        return insert_into(table, self.dialect)

    def lock_keys(self, *keys: str) -> None:
        """Hold `keys` until the end of the transaction, against every other holder.

        Always in the same order, so that two transactions never wait for each other. On SQLite a writer is alone.
        """
        if self.on_postgresql:
            for number in sorted({_number(key) for key in keys}):
                self.connection.execute(_LOCK, {"key": number}).all()

    def share_key(self, key: str) -> None:
        """Hold `key` together with others that share it, against whoever holds it alone."""
        if self.on_postgresql:
            self.connection.execute(_SHARE, {"key": _number(key)}).all()

    def try_lock_key(self, key: str) -> bool:
        """Hold `key` as `lock_keys` does if nobody else holds it; never waits."""
        return not self.on_postgresql or bool(
            self.connection.execute(_TRY_LOCK, {"key": _number(key)}).scalar()
        )

    def flush(self) -> int:
        """Write the files, append the gathered events and tell other processes; how many events there were."""
        self._write_files()
        if self.on_postgresql:
            for topic in sorted(self.topics):
                self.connection.execute(_NOTIFY, {"channel": channel(topic)})
        events.append(self.connection, self._events)
        if self._events:
            self.announce(Topic.EVENTS)
        return len(self._events)

    def _write_files(self) -> None:
        files, self._files = list(self._files.values()), {}
        try:
            write_files(files)
        except OSError as error:
            raise LedgerUnavailable(
                f"a file that is to be recorded could not be put on disk: {error}",
                hint="free some space, or see whether the disk is well; nothing of this was recorded",
            ) from error

    def run_after_commit(self) -> None:
        """Call all of them, also after one that fails; that is raised in the end."""
        with contextlib.ExitStack() as calls:
            for call in reversed(self._after_commit):
                calls.callback(call)

    def _inline(self, data: Any, run_id: int | None, attempt_id: int | None) -> str:
        text = to_json(data)
        if len(text) <= INLINE_BYTES:
            return text
        if not isinstance(data, dict):
            raise Misuse(f"event data of {len(text)} bytes must be an object")
        stored = self._artifacts.put(
            self,
            text.encode(),
            name="event-data.json",
            media_type="application/json",
            run_id=run_id,
            attempt_id=attempt_id,
        )
        return to_json({"artifact": stored.sha256, "bytes": stored.size})


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8], signed=True)
