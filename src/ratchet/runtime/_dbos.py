"""Delivery by DBOS: the only module that imports it.

Its tables live beside the ledger's (in the same SQLite file; in schema `dbos` on PostgreSQL), so that a ticket is
posted in the ledger's own transaction. A DBOS workflow here is one delivery: it carries a job's number and no more.
Only public calls are used: a dead worker's jobs are handed over by the ledger under new tickets, so DBOS's own recovery
is never needed.

It takes a third of a second to import, so only what delivers, or posts a ticket that must wait, pays for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet.kernel import JobId
from ratchet.ledger.tables import components
from ratchet.runtime.delivery import QueueRule, Ticket

if TYPE_CHECKING:
    from dbos import DBOSClient, DBOSConfig, Serializer

_APPLICATION = "ratchet"
_COMPONENT = "dbos"
_DBOS_VERSION = version("dbos")
_PREPARE_LOCK = 7_246_338_002
# Fixed: deliveries carry no code, so every release can take them.
_VERSION = "1"
_DELIVER = "ratchet.deliver"
# Within one priority jobs start in the order of their numbers. DBOS orders by whole seconds on SQLite, so the number
# is part of the priority it gets: 10 levels times 2**27 numbers fill its range.
_NUMBERS = 2**27
_HISTORY_BATCH = 1000
_UNDER_WAY = ["ENQUEUED", "DELAYED", "PENDING"]
_LIGHT: Any = {"load_input": False, "load_output": False}


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

    def open(self, process_id: str, on_ticket: Callable[[Ticket], None]) -> None:
        from dbos import DBOS

        self.prepare()
        config: DBOSConfig = {
            "name": _APPLICATION,
            "system_database_engine": self._engine,
            "executor_id": process_id,
            "application_version": _VERSION,
            "serializer": _serializer(),
            "log_level": "WARNING",
            "use_listen_notify": False,
            # It is to have no schedules: the clock is ours.
            "scheduler_polling_interval_sec": 3600.0,
        }
        for schedule in self.client.list_schedules():
            self.client.delete_schedule(schedule["schedule_name"])
        DBOS(config=config)

        @DBOS.workflow(name=_DELIVER)
        def deliver(job_id: int, delivery: int) -> None:
            on_ticket(Ticket(JobId(job_id), delivery))

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
                # Without limits only delayed jobs come this way, and DBOS looks at delays once a second.
                polling_interval_sec=self._poll_seconds if rule.limited else max(1.0, self._poll_seconds),
                on_conflict="always_update",
            )

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
        if pending:
            self.client.cancel_workflows([each.workflow_id for each in pending])

    def prune(self, older_than_hours: float) -> None:
        before = (datetime.now(UTC) - timedelta(hours=older_than_hours)).isoformat()
        ended = self.client.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED"], completed_before=before, limit=_HISTORY_BATCH, **_LIGHT
        )
        if ended:
            self.client.delete_workflows([each.workflow_id for each in ended])

    def stop_receiving(self, wait_seconds: float) -> None:
        if self._launched:
            from dbos import DBOS

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
            from dbos import DBOSClient

            self.prepare()
            with self._lock:
                self._client = self._client or DBOSClient(
                    system_database_engine=self._engine,
                    serializer=_serializer(),
                    application_name=_APPLICATION,
                    lazy=True,
                    # An outage must surface: the ledger's own transaction is at stake.
                    retry_connection_errors=False,
                )
        return self._client

    def prepare(self) -> None:
        """Make or upgrade DBOS's tables. One process does it, others wait here and then find it done."""
        if self._prepared():
            return
        with self._alone():
            if not self._prepared():
                from dbos import DBOS

                DBOS.migrate(self._engine.url.render_as_string(hide_password=False))
                with self._engine.begin() as connection:
                    connection.execute(sa.delete(components).where(components.c.name == _COMPONENT))
                    connection.execute(sa.insert(components).values(name=_COMPONENT, version=_DBOS_VERSION))

    def _prepared(self) -> bool:
        query = sa.select(components.c.version).where(components.c.name == _COMPONENT)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar() == _DBOS_VERSION

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._lock_file is not None:
            with self._lock_file.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            return
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # Asked again rather than waited for: DBOS builds indexes concurrently, which waits for whoever waits here.
            while not connection.execute(
                sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": _PREPARE_LOCK}
            ).scalar():
                time.sleep(0.1)
            try:
                yield
            finally:
                connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _PREPARE_LOCK})


@cache
def _serializer() -> Serializer:
    """JSON, so that what is read from the database can never run as code."""
    from dbos import Serializer

    class JsonSerializer(Serializer):
        def name(self) -> str:
            return "ratchet_json"

        def serialize(self, data: Any) -> str:
            return json.dumps(data, default=_encode)

        def deserialize(self, serialized_data: str) -> Any:
            return json.loads(serialized_data, object_hook=_decode)

    return JsonSerializer()


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
