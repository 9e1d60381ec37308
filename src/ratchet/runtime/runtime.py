"""The runtime: jobs, queues and schedules on one ledger, opened as the settings say."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.ledger import Ledger
from ratchet.runtime.job import DEFAULT_PRIORITY, DEFAULT_QUEUE, RetryPolicy
from ratchet.runtime.jobs import Jobs, configured_rules

if TYPE_CHECKING:
    from ratchet.config import Loaded, Settings
    from ratchet.ledger import Budgets, Ledger, Transaction
    from ratchet.runtime.kinds import Kinds
    from ratchet.runtime.schedules import Missed


def open_ledger(loaded: Loaded) -> Ledger:
    return Ledger.open(loaded.settings.database_url.reveal(), loaded.home / "artifacts")


def open_runtime(loaded: Loaded, ledger: Ledger, kinds: Kinds | None = None) -> Runtime:
    """The runtime on `ledger`, with every installed kind of job unless others are given."""
    # Loaded here: a command that only reads needs the ledger and no runtime.
    from ratchet.runtime.kinds import Kinds

    return Runtime(ledger, loaded.settings, Kinds.installed() if kinds is None else kinds)


def configured_budgets(settings: Settings) -> Budgets:
    from ratchet.ledger import Budgets

    scopes = settings.budgets
    return Budgets(
        scopes.policy,
        {"attempt": scopes.attempt.limits, "run": scopes.run.limits, "project": scopes.project.limits},
    )


class Runtime:
    """The door to durable work. One per process; cheap to open."""

    def __init__(self, ledger: Ledger, settings: Settings, kinds: Kinds) -> None:
        config = settings.runtime
        self.ledger = ledger
        self.settings = settings
        self.kinds = kinds
        self.rules = configured_rules(settings)
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
