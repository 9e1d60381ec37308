"""Delivery by DBOS: the only module that imports it.

Its tables live beside the ledger's (in the same SQLite file; in schema `dbos` on PostgreSQL), so that a ticket is
posted in the ledger's own transaction. A DBOS workflow here is one delivery: it carries a job's number and no more.
Only public calls are used: a dead worker's jobs are handed over by the ledger under new tickets, so DBOS's own recovery
is never needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig
from dbos import Serializer as DbosSerializer

from ratchet.kernel import JobId
from ratchet.runtime.delivery import Cron, QueueRule, Ticket

_APPLICATION = "ratchet"
# Fixed: deliveries carry no code, so every release can take them.
_VERSION = "1"
_DELIVER = "ratchet.deliver"
_TICK = "ratchet.tick"
# Within one priority jobs start in the order of their numbers. DBOS orders by whole seconds on SQLite, so the number
# is part of the priority it gets: 10 levels times 2**27 numbers fill its range.
_NUMBERS = 2**27
_HISTORY_BATCH = 1000
_UNDER_WAY = ["ENQUEUED", "DELAYED", "PENDING"]
_LIGHT: Any = {"load_input": False, "load_output": False}


class JsonSerializer(DbosSerializer):
    """JSON, so that what is read from the database can never run as code."""

    def name(self) -> str:
        return "ratchet_json"

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=_encode)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data, object_hook=_decode)


class DbosDelivery:
    """See `Delivery`."""

    def __init__(self, engine: sa.Engine, *, poll_seconds: float, lock_file: Path | None) -> None:
        self._engine = engine
        self._poll_seconds = poll_seconds
        self._lock_file = lock_file
        self._client: DBOSClient | None = None
        # Only one thread makes the client.
        self._lock = threading.Lock()
        self._launched = False

    def post(
        self, connection: sa.Connection, ticket: Ticket, *, queue: str, priority: int, delay_seconds: float
    ) -> None:
        options: dict[str, Any] = {
            "workflow_name": _DELIVER,
            "queue_name": queue,
            "workflow_id": _workflow_id(ticket),
            "priority": priority * _NUMBERS + ticket.job_id % _NUMBERS + 1,
        }
        if delay_seconds > 0:
            options["delay_seconds"] = delay_seconds
        self.client.enqueue_in_transaction(connection, options, ticket.job_id, ticket.delivery)  # type: ignore[arg-type]

    def open(
        self, process_id: str, on_ticket: Callable[[Ticket], None], on_tick: Callable[[str, float], None]
    ) -> None:
        self.prepare()
        config: DBOSConfig = {
            "name": _APPLICATION,
            "system_database_engine": self._engine,
            "executor_id": process_id,
            "application_version": _VERSION,
            "serializer": JsonSerializer(),
            "log_level": "WARNING",
            "use_listen_notify": False,
            "scheduler_polling_interval_sec": 1.0,
        }
        DBOS(config=config)

        @DBOS.workflow(name=_DELIVER)
        def deliver(job_id: int, delivery: int) -> None:
            on_ticket(Ticket(JobId(job_id), delivery))

        @DBOS.workflow(name=_TICK)
        def tick(scheduled: datetime, name: str) -> None:
            on_tick(name, scheduled.timestamp())

        DBOS.launch()
        self._launched = True

    def set_queues(self, rules: list[QueueRule], slots: int, paused: frozenset[str]) -> None:
        for rule in rules:
            limiter: Any = None
            if rule.rate_limit is not None:
                limiter = {"limit": rule.rate_limit, "period": rule.rate_seconds}
            here = slots if rule.concurrency is None else min(slots, rule.concurrency)
            self.client.register_queue(
                rule.name,
                worker_concurrency=0 if rule.name in paused else here,
                global_concurrency=rule.concurrency,
                limiter=limiter,
                polling_interval_sec=self._poll_seconds,
                on_conflict="always_update",
            )

    def set_schedules(self, crons: list[Cron]) -> None:
        wanted = {cron.name: cron for cron in crons}
        known = {each["schedule_name"]: each for each in self.client.list_schedules()}
        for name in known.keys() - wanted.keys():
            self.client.delete_schedule(name)
        for name, cron in wanted.items():
            there = known.get(name)
            same = there and (there["schedule"], there["cron_timezone"]) == (cron.expression, cron.timezone)
            if not same:
                self.client.apply_schedules(
                    [
                        {
                            "schedule_name": name,
                            "workflow_name": _TICK,
                            "schedule": cron.expression,
                            "context": name,
                            "cron_timezone": cron.timezone,
                        }
                    ]
                )
            active = not same or (there is not None and there["status"] == "ACTIVE")
            if cron.paused == active:
                (self.client.pause_schedule if cron.paused else self.client.resume_schedule)(name)

    def lost(self, tickets: list[Ticket]) -> list[Ticket]:
        if not tickets:
            return []
        by_id = {_workflow_id(ticket): ticket for ticket in tickets}
        under_way = self.client.list_workflows(workflow_ids=list(by_id), status=_UNDER_WAY, **_LIGHT)
        return [by_id[name] for name in by_id.keys() - {each.workflow_id for each in under_way}]

    def held(self, process_id: str) -> list[Ticket]:
        pending = self.client.list_workflows(
            status="PENDING", executor_id=process_id, name=_DELIVER, **_LIGHT
        )
        return [_ticket(each.workflow_id) for each in pending]

    def forget(self, process_id: str) -> None:
        pending = self.client.list_workflows(status="PENDING", executor_id=process_id, **_LIGHT)
        ticks = [each.workflow_id for each in pending if each.name == _TICK]
        deliveries = [each.workflow_id for each in pending if each.name != _TICK]
        if ticks:
            self.client.resume_workflows(ticks)
        if deliveries:
            self.client.cancel_workflows(deliveries)
            self.client.delete_workflows(deliveries)

    def prune(self, older_than_hours: float) -> None:
        before = (datetime.now(UTC) - timedelta(hours=older_than_hours)).isoformat()
        ended = self.client.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED"], completed_before=before, limit=_HISTORY_BATCH, **_LIGHT
        )
        if ended:
            self.client.delete_workflows([each.workflow_id for each in ended])

    def stop_receiving(self, wait_seconds: float) -> None:
        if self._launched:
            self._launched = False
            DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=int(wait_seconds))

    def close(self) -> None:
        self.stop_receiving(0)
        if self._client is not None:
            self._client.destroy()
            self._client = None

    @property
    def client(self) -> DBOSClient:
        if self._client is None:
            self.prepare()
            with self._lock:
                self._client = self._client or DBOSClient(
                    system_database_engine=self._engine,
                    serializer=JsonSerializer(),
                    application_name=_APPLICATION,
                    lazy=True,
                    # An outage must surface: the ledger's own transaction is at stake.
                    retry_connection_errors=False,
                )
        return self._client

    def prepare(self) -> None:
        """Make DBOS's tables when they are missing."""
        on_sqlite = self._engine.dialect.name == "sqlite"
        if sa.inspect(self._engine).has_table("queues", schema=None if on_sqlite else "dbos"):
            return
        url = self._engine.url.render_as_string(hide_password=False)
        with self._migrating():
            DBOS.migrate(url)

    @contextlib.contextmanager
    def _migrating(self) -> Iterator[None]:
        """One process at a time on SQLite; on PostgreSQL DBOS takes a lock of its own."""
        if self._lock_file is None:
            yield
            return
        with self._lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _workflow_id(ticket: Ticket) -> str:
    return f"job-{ticket.job_id}-{ticket.delivery}"


def _ticket(workflow_id: str) -> Ticket:
    _, job_id, delivery = workflow_id.split("-")
    return Ticket(JobId(int(job_id)), int(delivery))


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"__datetime__": value.isoformat()}
    raise TypeError(f"{type(value).__name__} cannot be sent through the queue")


def _decode(value: dict[str, Any]) -> Any:
    return datetime.fromisoformat(value["__datetime__"]) if value.keys() == {"__datetime__"} else value
