"""One transaction: what is read, written and said to have happened together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import Misuse
from ratchet.ledger import events
from ratchet.ledger._columns import to_json
from ratchet.ledger.database import now_ms

if TYPE_CHECKING:
    from ratchet.ledger.artifacts import ArtifactStore

# An event longer than this keeps its data in the artifact store; the event says where.
INLINE_BYTES = 64 * 1024


class Transaction:
    """Work in progress on the ledger, made by `Ledger.write` and `Ledger.read`.

    Events are gathered and appended as one batch when the block ends, in the same commit as everything else.
    """

    def __init__(
        self, connection: sa.Connection, artifacts: ArtifactStore, *, actor: str, request_id: str | None
    ) -> None:
        self.connection = connection
        self.actor = actor
        self.request_id = request_id
        self.now = now_ms()
        self._artifacts = artifacts
        self._events: list[dict[str, Any]] = []
        self._after_commit: list[Callable[[], None]] = []

    @property
    def on_postgresql(self) -> bool:
        return self.connection.dialect.name == "postgresql"

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
                "project_id": project_id,
                "run_id": run_id,
                "step_id": step_id,
                "attempt_id": attempt_id,
                "job_id": job_id,
                "message": message,
                "data": self._inline(data, run_id, attempt_id),
            }
        )

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call this once the transaction is committed; not at all if it is rolled back."""
        self._after_commit.append(call)

    def lock_key(self, key: str) -> None:
        """Hold `key` until the end of the transaction, against every other holder.

        On SQLite a writer is alone anyway.
        """
        if self.on_postgresql:
            number = int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8], signed=True)
            self.connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": number})

    def flush_events(self) -> int:
        """Append the gathered events; how many there were."""
        events.append(self.connection, self._events)
        return len(self._events)

    def run_after_commit(self) -> None:
        for call in self._after_commit:
            call()

    def _inline(self, data: Any, run_id: int | None, attempt_id: int | None) -> Any:
        if data is None:
            return None
        text = to_json(data)
        if len(text) <= INLINE_BYTES:
            return data
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
        return {"artifact": stored.sha256, "bytes": stored.size}
