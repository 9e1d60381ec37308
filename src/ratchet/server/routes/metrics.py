"""Prometheus metrics of the whole fleet: what the processes counted, and what the ledger holds."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Response

from ratchet.kernel import LedgerError, LedgerUnavailable, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import count_open_runs
from ratchet.observe import metrics
from ratchet.observe.metrics import Gauge
from ratchet.runtime import JobStatus, Runtime, list_processes, list_queues
from ratchet.runtime.processes import ALIVE, all_snapshots
from ratchet.server.service import Api

router = APIRouter(tags=["health"])


class Exposition(Response):
    media_type = metrics.CONTENT_TYPE


@router.get("/metrics", response_class=Exposition)
def prometheus(api: Api) -> Exposition:
    """Prometheus text format. Counters are those of all processes that ever worked on this ledger."""
    try:
        with api.read() as tx:
            others = all_snapshots(tx, but=api.service.process_id)
            gauges = list(_gauges(tx, api.runtime))
    except LedgerError as error:
        # Shown to anybody: where the database is stays inside. No half answer either, it would look like a reset.
        raise LedgerUnavailable("the database does not answer") from error
    return Exposition(metrics.exposition(metrics.merge([*others, metrics.snapshot()]), gauges))


def _gauges(tx: Transaction, runtime: Runtime) -> Iterator[Gauge]:
    for queue in list_queues(tx, runtime.rules):
        for status in JobStatus:
            labels = {"queue": queue.name, "status": status}
            yield Gauge("jobs", "Jobs by queue and status.", queue.counts.get(status, 0), labels)
    counted = count_open_runs(tx)
    for state in (status for status in RunStatus if not status.final):
        yield Gauge("runs", "Runs that have not ended, by status.", counted.get(state, 0), {"status": state})
    alive = sum(process.state in ALIVE for process in list_processes(tx))
    yield Gauge("processes_alive", "Processes that beat.", alive)
    yield Gauge("newest_event_id", "The number of the newest event.", last_id(tx.connection))
