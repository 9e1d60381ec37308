"""The seam to the durable queue: what Ratchet asks of it, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

if TYPE_CHECKING:
    from ratchet.kernel import JobId


@dataclass(frozen=True, slots=True)
class Ticket:
    """One delivery of a job. The number rises with every hand-over; an old ticket opens nothing."""

    job_id: JobId
    delivery: int


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The limits of a queue over the whole fleet; `None` is no limit."""

    name: str
    concurrency: int | None = None
    rate_limit: int | None = None
    rate_seconds: float | None = None

    @property
    def limited(self) -> bool:
        return self.concurrency is not None or self.rate_limit is not None


class Delivery(Protocol):
    """Brings tickets to workers: by priority, after a delay, and within a queue's limits."""

    def post(
        self, connection: sa.Connection, ticket: Ticket, *, queue: str, priority: int, delay_seconds: float
    ) -> None:
        """Have the ticket delivered once `connection` commits; not at all if it rolls back."""

    def open(self, process_id: str, on_ticket: Callable[[Ticket], None]) -> None:
        """Begin to receive here."""

    def set_queues(self, rules: list[QueueRule], slots: int, paused: frozenset[str]) -> None:
        """Apply queue limits, the slots of one worker, and which queues stand still."""

    def lost(self, tickets: list[Ticket]) -> list[Ticket]:
        """Those of `tickets` that are not under way to any worker."""

    def held(self, process_id: str) -> list[Ticket]:
        """What a process has received and not answered."""

    def forget(self, process_id: str) -> None:
        """Drop what a gone process has received; its jobs have new tickets."""

    def prune(self, older_than_hours: float) -> None:
        """Drop the records of old deliveries."""

    def stop_receiving(self, wait_seconds: float) -> None:
        """Receive nothing more, and wait for what was received."""

    def close(self) -> None:
        """Let go of the database."""
