"""Whether this process lives, and whether it can work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel, Field

from ratchet import __version__
from ratchet.kernel import LedgerError, LedgerUnavailable, RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.events import last_id
from ratchet.ledger.processes import is_running
from ratchet.ledger.production import CALL_BUCKETS_MS, CallTotals, call_totals
from ratchet.ledger.runs import count_open_runs
from ratchet.observe import metrics
from ratchet.observe.logs import logger
from ratchet.observe.metrics import Gauge
from ratchet.runtime import JobStatus, Process, Runtime, list_processes, list_queues
from ratchet.runtime.processes import ALIVE, all_snapshots, is_silent, list_nodes, takes_jobs
from ratchet.runtime.resources import (
    descriptors_of,
    disk_free_bytes,
    inotify_limit,
    memory_available_bytes,
    resident_bytes,
    shortages,
)
from ratchet.server.service import Access, Api

router = APIRouter(tags=["health"])
_log = logger(__name__)
Answered = TypeVar("Answered")


class Live(BaseModel):
    status: Literal["ok"] = "ok"


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    version: str = __version__
    reasons: list[str] = Field(description="why it is degraded")


class ServerReadiness(BaseModel):
    status: Literal["ready", "not ready"]
    reasons: list[str] = Field(description="why it is not ready")


async def shared(api: Access, ask: Callable[[Access], Answered]) -> Answered:
    """What `ask` answers, asked once for all who wait for it: anyone may ask, and as often as they like."""
    name, loop = f"shared {ask.__name__}", asyncio.get_running_loop()
    asking: asyncio.Future[Answered] | None = api.kept.get(name)
    if asking is None or asking.get_loop() is not loop:
        asking = api.kept[name] = loop.create_task(run_in_threadpool(ask, api))
        asking.add_done_callback(lambda _: api.kept.pop(name, None))
    # One who leaves does not end it for the others.
    return await asyncio.shield(asking)


@router.get("/health")
async def health(api: Api) -> Health:
    """Always 200: the body says how well."""
    reasons = await shared(api, _reasons)
    return Health(status="degraded" if reasons else "ok", reasons=reasons)


@router.get("/health/live")
async def live() -> Live:
    """Answers as long as the process does, whatever the database does."""
    return Live()


@router.get("/health/ready", responses={503: {"model": ServerReadiness}})
async def ready(api: Api, response: Response) -> ServerReadiness:
    """503 while work should be sent elsewhere."""
    reasons = await shared(api, _reasons)
    if reasons:
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    return ServerReadiness(status="not ready" if reasons else "ready", reasons=reasons)


def _reasons(api: Access) -> list[str]:
    """What keeps this process from working, in words that tell a stranger nothing."""
    reasons = ["the server is shutting down"] if api.service.stopping.is_set() else []
    try:
        with api.read() as tx:
            processes, now = {process.id: process for process in list_processes(tx)}, tx.now
    except LedgerError as error:
        _log.warning("the database does not answer", error=str(error))
        return [*reasons, *shortages(api.home), "the database does not answer"]
    reasons += shortages(api.home, (each.pid for each in _of_this_machine(processes.values())))
    process = processes.get(api.service.process_id or "")
    dead_after = api.settings.runtime.dead_after_seconds
    if process is not None and process.state == "dead":
        reasons.append("the other processes have given this one up")
    elif process is not None and is_silent(process, now, dead_after):
        # Its heartbeat is what it writes most often.
        reasons.append("the ledger cannot be written")
    elif not any(takes_jobs(each) and not is_silent(each, now, dead_after) for each in processes.values()):
        reasons.append("no worker takes jobs")
    return reasons


def _of_this_machine(found: Iterable[Process]) -> list[Process]:
    host = socket.gethostname()
    return [each for each in found if each.host == host and is_running(each.pid, each.identity) is not False]


class Exposition(Response):
    media_type = metrics.CONTENT_TYPE


@router.get("/metrics", response_class=Exposition)
async def prometheus(api: Api) -> Exposition:
    """Prometheus text format. Counters are those of all processes that ever worked on this ledger."""
    return Exposition(await shared(api, _exposition))


def _exposition(api: Access) -> bytes:
    try:
        with api.read() as tx:
            others = all_snapshots(tx, but=api.service.process_id)
            gauges = list(_gauges(tx, api.runtime))
            calls = call_totals(tx)
    except LedgerError as error:
        # Shown to anybody: where the database is stays inside. No half answer either, it would look like a reset.
        raise LedgerUnavailable("the database does not answer") from error
    merged = metrics.merge([*others, metrics.snapshot()])
    return metrics.exposition(merged, gauges, _calls_of_agents(calls))


def _calls_of_agents(found: Sequence[CallTotals]) -> list[Metric]:
    """The calls of agents. The ledger bounds how many versions and tools are counted apart."""
    by_version: dict[tuple[str, str], CallTotals] = {}
    counts = []
    for each in found:
        labels = {"agent": each.agent, "version": each.version, "commit": each.commit[:12]}
        tool = {**labels, "server": each.server, "tool": each.tool}
        ok = each.calls - each.failed - each.errors
        for outcome, count in (("ok", ok), ("failed", each.failed), ("error", each.errors)):
            counts.append(({**tool, "outcome": outcome}, count))
        known = by_version.get((each.agent, each.commit))
        by_version[each.agent, each.commit] = each if known is None else known + each
    timed = [
        metrics.TimedCalls(
            {"agent": each.agent, "version": each.version, "commit": each.commit[:12]},
            each.calls,
            each.milliseconds / 1000,
            {bound / 1000: count for bound, count in zip(CALL_BUCKETS_MS, each.buckets, strict=True)},
        )
        for each in by_version.values()
    ]
    return [
        metrics.counter("agent_calls", "Calls of agents by version, tool and outcome.", counts),
        metrics.histogram("agent_call_seconds", "Time of a call of an agent, by version.", timed),
    ]


def _gauges(tx: Transaction, runtime: Runtime) -> Iterator[Gauge]:
    for queue in list_queues(tx, runtime.rules):
        for status in JobStatus:
            labels = {"queue": queue.name, "status": status}
            yield Gauge("jobs", "Jobs by queue and status.", queue.counts.get(status, 0), labels)
    counted = count_open_runs(tx)
    for state in (status for status in RunStatus if not status.final):
        yield Gauge("runs", "Runs that have not ended, by status.", counted.get(state, 0), {"status": state})
    processes = list_processes(tx)
    alive = sum(process.state in ALIVE for process in processes)
    yield Gauge("processes_alive", "Processes that beat.", alive)
    yield from _nodes(tx, runtime)
    yield from _resources(_of_this_machine(processes), runtime.home)
    yield Gauge("newest_event_id", "The number of the newest event.", last_id(tx.connection))


def _nodes(tx: Transaction, runtime: Runtime) -> Iterator[Gauge]:
    """How the machines of the fleet and the nodes of its cluster are used."""
    for node in list_nodes(tx, runtime.settings.runtime.dead_after_seconds):
        labels = {"node": node.name, "kind": node.kind}
        yield Gauge("node_up", "Whether a process of this node beats.", float(node.state == "alive"), labels)
        yield Gauge("node_cpus", "CPUs of a node that may be used.", node.cpus, labels)
        yield Gauge("node_gpus", "Graphics cards of a node.", len(node.gpus), labels)
        if node.cpus_used is not None:
            yield Gauge("node_cpus_used", "CPUs that the cluster has given out.", node.cpus_used, labels)
            continue
        yield Gauge("node_slots", "Jobs that the workers of a node take at once.", node.slots, labels)
        yield Gauge("node_slots_busy", "Jobs that the workers of a node do now.", node.busy, labels)
        for role, count in node.roles.items():
            yield Gauge("node_processes", "Processes of a node.", count, {**labels, "role": role})


def _resources(processes: list[Process], home: Path) -> Iterator[Gauge]:
    """What the processes of this machine use of it, and what is left."""
    for each in processes:
        labels = {"role": each.role, "pid": str(each.pid)}
        open_now = descriptors_of(each.pid)
        if open_now is not None:
            yield Gauge("open_descriptors", "Descriptors that a process has open.", open_now.open, labels)
            yield Gauge("descriptor_limit", "Descriptors that a process may open.", open_now.limit, labels)
            yield Gauge("inotify_instances", "Inotify instances of a process.", open_now.inotify, labels)
        resident = resident_bytes(each.pid)
        if resident is not None:
            yield Gauge("resident_memory_bytes", "Memory that a process has resident.", resident, labels)
    yield Gauge("disk_free_bytes", "Room on the disk of the home.", disk_free_bytes(home))
    available = memory_available_bytes()
    if available is not None:
        yield Gauge("memory_available_bytes", "Memory that this machine can still give out.", available)
    for what in ("instances", "watches"):
        limit = inotify_limit(what)
        if limit is not None:
            yield Gauge(f"inotify_{what}_limit", f"Inotify {what} that a user may have.", limit)
