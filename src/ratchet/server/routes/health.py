"""Whether this process lives, and whether it can work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from ratchet import __version__
from ratchet.kernel import LedgerError, LedgerUnavailable, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import count_open_runs
from ratchet.observe import metrics
from ratchet.observe.logs import logger
from ratchet.observe.metrics import Gauge
from ratchet.runtime import JobStatus, Runtime, list_processes, list_queues
from ratchet.runtime.processes import ALIVE, all_snapshots, is_silent
from ratchet.server.service import Access, Api

router = APIRouter(tags=["health"])
_log = logger(__name__)
# Below this, SQLite cannot be relied on to write its journal.
_LEAST_FREE_BYTES = 16 * 1024 * 1024
_STATES = {"draining": "the worker is draining", "dead": "the other processes have given this one up"}


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    version: str = __version__
    reasons: list[str] = Field(description="why it is degraded")


class ServerReadiness(BaseModel):
    status: Literal["ready", "not ready"]
    reasons: list[str] = Field(description="why it is not ready")


@router.get("/health")
def health(api: Api) -> Health:
    """Always 200: the body says how well."""
    reasons = _reasons(api)
    return Health(status="degraded" if reasons else "ok", reasons=reasons)


@router.get("/health/live")
async def live() -> Live:
    """Answers as long as the process does, whatever the database does."""
    return Live()


@router.get("/health/ready", responses={503: {"model": ServerReadiness}})
def ready(api: Api, response: Response) -> ServerReadiness:
    """503 while work should be sent elsewhere."""
    reasons = _reasons(api)
    if reasons:
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    return ServerReadiness(status="not ready" if reasons else "ready", reasons=reasons)


def _reasons(api: Access) -> list[str]:
    """What keeps this process from working, in words that tell a stranger nothing."""
    reasons = ["the server is shutting down"] if api.service.stopping.is_set() else []
    if _is_full(api.home):
        reasons.append("the disk is full")
    try:
        with api.read() as tx:
            processes, now = {process.id: process for process in list_processes(tx)}, tx.now
    except LedgerError as error:
        _log.warning("the database does not answer", error=str(error))
        return [*reasons, "the database does not answer"]
    process = processes.get(api.service.process_id or "")
    if process is None:
        reasons.append("no worker runs in this process")
    elif process.state in _STATES:
        reasons.append(_STATES[process.state])
    elif is_silent(process, now, api.settings.runtime.dead_after_seconds):
        # Its heartbeat is what it writes most often.
        reasons.append("the ledger cannot be written")
    return reasons


def _is_full(home: Path) -> bool:
    """Whether nothing more can be kept, as far as this user may fill the disk."""
    try:
        disk = os.statvfs(home)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES or (disk.f_files > 0 and disk.f_favail == 0)


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
