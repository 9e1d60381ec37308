"""Background work yields to all other work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.ledger import EventFilter, Ledger, events
from ratchet.runtime import JobContext, JobStatus, Kinds, Runtime, Worker, get_job, open_runtime
from ratchet.runtime.job import BACKGROUND
from ratchet.runtime.processes import register
from tests.runtime.conftest import ended, pause, status_of
from tests.waiting import eventually

ME = "process-1"


def enter(ledger: Ledger, slots: int) -> None:
    with ledger.write() as tx:
        register(tx, ME, "worker", slots)


def add(ledger: Ledger, runtime: Runtime, priority: int, **options: Any) -> int:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": ""}, priority=priority, **options)
    assert job_id is not None
    return job_id


def claim(ledger: Ledger, runtime: Runtime, most: int) -> list[int]:
    with ledger.write() as tx:
        return [job.id for job in runtime.jobs.look(tx, ME, most).claimed]


def test_background_jobs_leave_one_place_free(ledger: Ledger, runtime: Runtime) -> None:
    enter(ledger, slots=3)
    first, second, third = (add(ledger, runtime, BACKGROUND) for _ in range(3))
    assert claim(ledger, runtime, 3) == [first, second]
    assert claim(ledger, runtime, 1) == []
    urgent = add(ledger, runtime, 5)
    assert claim(ledger, runtime, 1) == [urgent]
    with ledger.write() as tx:
        runtime.jobs.finish(tx, get_job(tx, first), None)
    assert claim(ledger, runtime, 1) == [third]


def test_a_worker_with_one_place_does_background_work_when_there_is_no_other(
    ledger: Ledger, runtime: Runtime
) -> None:
    enter(ledger, slots=1)
    background = add(ledger, runtime, BACKGROUND)
    urgent = add(ledger, runtime, BACKGROUND - 1)
    assert claim(ledger, runtime, 1) == [urgent]
    with ledger.write() as tx:
        runtime.jobs.finish(tx, get_job(tx, urgent), None)
    assert claim(ledger, runtime, 1) == [background]


def test_a_background_job_whose_time_has_come_waits_for_its_place(ledger: Ledger, runtime: Runtime) -> None:
    enter(ledger, slots=2)
    add(ledger, runtime, BACKGROUND)
    assert len(claim(ledger, runtime, 1)) == 1
    delayed = add(ledger, runtime, BACKGROUND, delay_seconds=0.01)
    eventually(lambda: claim(ledger, runtime, 1) == [] and status_of(ledger, delayed) is JobStatus.QUEUED)
    urgent = add(ledger, runtime, 5)
    assert claim(ledger, runtime, 1) == [urgent]


def test_only_background_work_is_asked_to_yield_and_only_while_others_wait(
    ledger: Ledger, runtime: Runtime
) -> None:
    def yields(priority: int) -> bool:
        with ledger.read() as tx:
            return JobContext(runtime, get_job(tx, running[priority]), ME).should_yield()

    enter(ledger, slots=4)
    running = {priority: add(ledger, runtime, priority) for priority in (5, BACKGROUND)}
    claim(ledger, runtime, 2)
    add(ledger, runtime, BACKGROUND)
    assert not yields(BACKGROUND)
    add(ledger, runtime, 8)
    eventually(lambda: yields(BACKGROUND))
    assert not yields(5)
    claim(ledger, runtime, 1)
    assert not yields(BACKGROUND)


def test_work_of_a_paused_queue_makes_nobody_yield(ledger: Ledger, runtime: Runtime) -> None:
    enter(ledger, slots=2)
    background = add(ledger, runtime, BACKGROUND)
    claim(ledger, runtime, 1)
    add(ledger, runtime, 5)
    with ledger.read() as tx:
        job = get_job(tx, background)
    eventually(lambda: JobContext(runtime, job, ME).should_yield())
    pause(runtime, "default")
    assert not JobContext(runtime, job, ME).should_yield()


@pytest.mark.soak
def test_a_background_job_gives_its_only_place_back_and_goes_on_afterwards(
    ledger: Ledger, loaded: Loaded, tmp_path: Path
) -> None:
    released = tmp_path / "released"

    async def patient(job: JobContext) -> str:
        while not released.exists():
            job.give_way()
            await asyncio.sleep(0.02)
        return "done"

    async def quick(job: JobContext) -> str:
        released.touch()
        return "done"

    kinds = Kinds()
    kinds.add("patient", patient)
    kinds.add("quick", quick)
    runtime = open_runtime(loaded, ledger, kinds)
    worker = Worker(runtime, slots=1)
    worker.start()
    try:
        with ledger.write() as tx:
            background = runtime.enqueue(tx, "patient", priority=BACKGROUND)
        eventually(lambda: status_of(ledger, background) is JobStatus.STARTED)
        with ledger.write() as tx:
            urgent = runtime.enqueue(tx, "quick")
        assert ended(ledger, urgent).result == "done"
        job = ended(ledger, background)
    finally:
        worker.stop(drain_seconds=0)
    assert (job.status, job.attempt, job.recoveries) == (JobStatus.FINISHED, 1, 0)
    with ledger.read() as tx:
        [event] = events.since(tx.connection, where=EventFilter(job_id=background))
    assert (event.type, event.message) == ("job.released", "it gave way to work that comes first")
