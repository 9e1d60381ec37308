"""The runtime: jobs, queues and schedules on one ledger."""

from __future__ import annotations

from typing import Any

from ratchet.config import Settings
from ratchet.kernel import JobId
from ratchet.ledger import Ledger, Transaction
from ratchet.runtime import queues, schedules
from ratchet.runtime.delivery import Cron, QueueRule
from ratchet.runtime.job import DEFAULT_PRIORITY, DEFAULT_QUEUE
from ratchet.runtime.jobs import Jobs
from ratchet.runtime.kinds import Kinds
from ratchet.runtime.policy import RetryPolicy


class Runtime:
    """The door to durable work. One per process; cheap to open where nothing is to be delivered yet."""

    def __init__(self, ledger: Ledger, settings: Settings, kinds: Kinds) -> None:
        from ratchet.runtime._dbos import DbosDelivery

        config = settings.runtime
        self.ledger = ledger
        self.settings = settings
        self.kinds = kinds
        self.rules = {
            name: QueueRule(name, rule.concurrency, rule.rate_limit, rule.rate_seconds)
            for name, rule in settings.queues.items()
        }
        self.delivery = DbosDelivery(
            ledger.engine,
            poll_seconds=config.poll_seconds,
            lock_file=None if ledger.path is None else ledger.path.with_name(ledger.path.name + ".lock"),
        )
        self.jobs = Jobs(
            self.delivery,
            self.rules,
            RetryPolicy(
                max_attempts=config.max_attempts,
                base_seconds=config.retry_base_seconds,
                cap_seconds=config.retry_cap_seconds,
                max_recoveries=config.max_recoveries,
            ),
        )
        # Before any transaction of ours is open: making tables needs the write lock that a transaction would hold.
        self.delivery.prepare()

    def enqueue(
        self,
        tx: Transaction,
        kind: str,
        payload: Any = None,
        *,
        queue: str = DEFAULT_QUEUE,
        key: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        delay_seconds: float = 0,
        run_id: int | None = None,
        once: str | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
    ) -> JobId | None:
        """Add a job in the caller's transaction; `None` when one with the same `once` exists already."""
        self.kinds.get(kind)
        queues.known(self.rules, queue)
        return self.jobs.enqueue(
            tx,
            kind,
            payload,
            queue=queue,
            key=key,
            priority=priority,
            delay_seconds=delay_seconds,
            run_id=run_id,
            once=once,
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
        )

    def pause_queue(self, name: str, *, actor: str = "ratchet", request_id: str | None = None) -> None:
        self._set_paused(name, paused=True, actor=actor, request_id=request_id)

    def resume_queue(self, name: str, *, actor: str = "ratchet", request_id: str | None = None) -> None:
        self._set_paused(name, paused=False, actor=actor, request_id=request_id)

    def apply_queues(self) -> None:
        """Bring the durable queue's limits in line with the configuration and the ledger."""
        with self.ledger.read() as tx:
            paused = queues.paused_queues(tx)
        self.delivery.set_queues(list(self.rules.values()), self.settings.runtime.slots, paused)

    def apply_schedules(self) -> None:
        """Bring the durable queue's schedules in line with the ledger's."""
        with self.ledger.read() as tx:
            wanted = schedules.list_schedules(tx)
        self.delivery.set_schedules(
            [Cron(each.name, each.cron, each.timezone, each.paused) for each in wanted]
        )

    def close(self) -> None:
        self.delivery.close()

    def _set_paused(self, name: str, *, paused: bool, actor: str, request_id: str | None) -> None:
        with self.ledger.write(actor=actor, request_id=request_id) as tx:
            queues.set_paused(tx, self.rules, name, paused)
        self.apply_queues()
