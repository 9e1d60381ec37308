"""The runtime: jobs, queues and schedules on one ledger."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.runtime import queues
from ratchet.runtime.job import DEFAULT_PRIORITY, DEFAULT_QUEUE, RetryPolicy
from ratchet.runtime.jobs import Jobs

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.ledger import Ledger, Transaction
    from ratchet.runtime.kinds import Kinds
    from ratchet.runtime.schedules import Missed


class Runtime:
    """The door to durable work. One per process; cheap to open."""

    def __init__(self, ledger: Ledger, settings: Settings, kinds: Kinds) -> None:
        config = settings.runtime
        self.ledger = ledger
        self.settings = settings
        self.kinds = kinds
        self.rules = queues.configured_rules(settings)
        self.jobs = Jobs(
            self.rules,
            kinds,
            RetryPolicy(
                max_attempts=config.max_attempts,
                base_seconds=config.retry_base_seconds,
                cap_seconds=config.retry_cap_seconds,
                max_recoveries=config.max_recoveries,
            ),
        )
        self.enqueue = self.jobs.enqueue

    @property
    def home(self) -> Path:
        """Ratchet's home, in which the artifacts lie."""
        return self.ledger.artifacts.root.parent

    def put_schedule(
        self,
        tx: Transaction,
        name: str,
        when: str,
        kind: str,
        payload: Any = None,
        *,
        timezone: str = "UTC",
        queue: str = DEFAULT_QUEUE,
        key: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        missed: Missed | str = "once",
    ) -> datetime:
        """Make or replace a schedule of jobs that can be enqueued; returns its first time. See `schedules`."""
        # Loaded here: to read what a person says about times takes more than all other work with jobs.
        from ratchet.runtime import schedules

        self.jobs.check_enqueuable(kind, queue, payload)
        return schedules.put_schedule(
            tx,
            name,
            when,
            kind,
            payload,
            timezone=timezone,
            queue=queue,
            key=key,
            priority=priority,
            missed=missed,
        )
