"""Several worker processes on one database, and what becomes of the work when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter, Ledger, events
from ratchet.ledger.runs import create_run, get_run
from ratchet.ledger.tables import job_starts
from ratchet.runtime import (
    Job,
    JobStatus,
    Runtime,
    Worker,
    list_processes,
    open_runtime,
    processes,
)
from tests.postgres import PostgresServer
from tests.runtime.conftest import ended, look, pause, status_of
from tests.runtime.fleet import Fleet, Nursery
from tests.runtime.kinds import make_kinds, marks
from tests.runtime.worker_process import load
from tests.waiting import eventually


def enqueue_spell(ledger: Ledger, runtime: Runtime, file: Path, seconds: float, **options: object) -> int:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "spell", {"file": str(file), "seconds": seconds}, **options)  # type: ignore[arg-type]
    assert job_id is not None
    return job_id


def test_work_of_a_killed_worker_is_taken_over_by_a_living_one(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    workers = [fleet.add(), fleet.add()]
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 2.0)
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    holder = look(ledger, job_id).process_id or ""
    victim, heir = sorted(workers, key=lambda pid: f"-{pid}-" not in holder)
    fleet.kill(victim)
    eventually(lambda: len(marks(tmp_path / "marks")) == 2)
    job = ended(ledger, job_id)
    assert (job.status, job.attempt, job.recoveries) == (JobStatus.FINISHED, 1, 1)
    assert f"-{heir}-" in (job.process_id or "")
    told = [line.split(":")[0] for line in marks(tmp_path / "marks")]
    assert told == ["start", "start", "end"]


@pytest.mark.soak
def test_a_frozen_worker_is_given_up_and_cannot_write_when_it_thaws(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    """It is alive for the kernel, so only its silence tells; its own end of the job must not count."""
    first = fleet.add()
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 1.0)
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    _freeze_between_writes(ledger, first)
    second = fleet.add()
    try:
        eventually(lambda: len(marks(tmp_path / "marks")) == 2)
    finally:
        os.kill(first, signal.SIGCONT)
    job = ended(ledger, job_id)
    assert f"-{second}-" in (job.process_id or "")
    assert (job.status, job.attempt) == (JobStatus.FINISHED, 1)
    # The thawed worker takes part again.
    eventually(lambda: len(_alive(ledger)) == 2)
    fleet.kill(second)
    again = enqueue_spell(ledger, runtime, tmp_path / "marks", 0.1)
    assert f"-{first}-" in (ended(ledger, again).process_id or "")


@pytest.mark.soak
def test_a_worker_that_is_told_to_stop_finishes_its_job_and_leaves(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    process = fleet.spawn()
    fleet.await_ready(process)
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 1.0)
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    assert status_of(ledger, job_id) is JobStatus.FINISHED
    assert _alive(ledger) == []


@pytest.mark.soak
def test_a_job_longer_than_the_drain_is_given_back_and_the_try_does_not_count(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    process = fleet.spawn(runtime__drain_seconds=0.2)
    fleet.await_ready(process)
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 2.0, max_attempts=1)
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 0
    assert status_of(ledger, job_id) is JobStatus.QUEUED
    fleet.add()
    job = ended(ledger, job_id)
    assert (job.status, job.attempt) == (JobStatus.FINISHED, 1)


@pytest.mark.soak
def test_a_job_that_kills_its_workers_ends(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "dying", {"file": str(tmp_path / "marks")})
    for _ in range(4):
        process = fleet.spawn(runtime__max_recoveries=2)
        if not _dies(process, 15):
            break
    job = ended(ledger, job_id)
    assert job.status is JobStatus.FAILED
    assert "died 3 times" in (job.error or "")
    assert len(marks(tmp_path / "marks")) == 3


@pytest.mark.soak
def test_keys_hold_across_processes_even_when_one_is_killed(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    workers = [fleet.add() for _ in range(2)]
    ids = [enqueue_spell(ledger, runtime, file, 0.05, key=f"key-{number % 3}") for number in range(18)]
    eventually(lambda: len(marks(file)) > 6)
    fleet.kill(workers[0])
    keys = {job_id: look(ledger, job_id).key for job_id in ids}
    for job_id in ids:
        assert ended(ledger, job_id, 30).status is JobStatus.FINISHED
    dead = f"-{workers[0]}-"
    for key in ("key-0", "key-1", "key-2"):
        busy: set[str] = set()
        for line in marks(file):
            word, number, process = line.split(":")
            if keys[int(number)] != key:
                continue
            if word == "start":
                # What the dead worker left open is over: it died before the other began.
                assert not {each for each in busy if dead not in each}, f"{line} overlaps {busy}"
                busy = {f"{number}:{process}"}
            else:
                busy.discard(f"{number}:{process}")


@pytest.mark.soak
def test_a_queue_limit_holds_over_the_whole_fleet(
    fleet: Fleet, ledger: Ledger, tmp_path: Path, url: str
) -> None:
    (tmp_path / "ratchet.toml").write_text("[queues.narrow]\nconcurrency = 2\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    for _ in range(2):
        fleet.add()
    file = tmp_path / "marks"
    ids = [enqueue_spell(ledger, runtime, file, 0.3, queue="narrow") for _ in range(6)]
    for job_id in ids:
        ended(ledger, job_id)
    running = most = 0
    for line in marks(file):
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert most == 2


def test_workers_that_claim_at_the_same_moment_share_the_places_of_a_queue(
    ledger: Ledger, tmp_path: Path, url: str
) -> None:
    (tmp_path / "ratchet.toml").write_text("[queues.narrow]\nconcurrency = 3\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    names = [f"worker-{number}" for number in range(4)]
    with ledger.write() as tx:
        for name in names:
            processes.register(tx, name, "worker", 4)
        for _ in range(12):
            runtime.enqueue(tx, "note", {"file": "unused"}, queue="narrow")

    def claim(name: str, most: int = 2) -> list[Job]:
        with ledger.write() as tx:
            return runtime.jobs.claim(tx, name, most)

    with ThreadPoolExecutor(len(names)) as threads:
        started = [job for claimed in threads.map(claim, names) for job in claimed]
    assert sorted(job.id for job in started) == [1, 2, 3]
    assert claim(names[0]) == []
    with ledger.write() as tx:
        runtime.jobs.finish(tx, started[0], None)
    assert [job.id for job in claim(names[0])] == [4]


@pytest.mark.soak
def test_a_limited_queue_can_be_paused_too(fleet: Fleet, ledger: Ledger, tmp_path: Path, url: str) -> None:
    (tmp_path / "ratchet.toml").write_text("[queues.narrow]\nconcurrency = 2\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    fleet.add()
    pause(runtime, "narrow")
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 0.1, queue="narrow")
    time.sleep(2)
    assert marks(tmp_path / "marks") == []
    pause(runtime, "narrow", paused=False)
    assert ended(ledger, job_id).status is JobStatus.FINISHED


@pytest.mark.soak
def test_a_rate_limit_spreads_the_starts(fleet: Fleet, ledger: Ledger, tmp_path: Path, url: str) -> None:
    """Five per two seconds, whatever the moment from which one counts."""
    (tmp_path / "ratchet.toml").write_text("[queues.slow]\nrate_limit = 5\nrate_seconds = 2\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    file = tmp_path / "marks"
    with ledger.write() as tx:
        ids = [runtime.enqueue(tx, "note", {"file": str(file)}, queue="slow") for _ in range(11)]
    for _ in range(2):
        fleet.add()
    starts = sorted(ended(ledger, job_id).started_at or 0 for job_id in ids)
    assert all(later - sooner >= 2000 for sooner, later in zip(starts, starts[5:], strict=False))


def test_a_try_counts_against_the_rate_of_its_queue_for_as_long_as_it_looks_back(
    ledger: Ledger, tmp_path: Path, url: str
) -> None:
    (tmp_path / "ratchet.toml").write_text("[queues.slow]\nrate_limit = 2\nrate_seconds = 0.2\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    with ledger.write() as tx:
        processes.register(tx, "me", "worker", 4)
        runtime.enqueue(tx, "note", {"file": "unused"}, queue="slow")
        [first] = runtime.jobs.claim(tx, "me", 4)
        runtime.jobs.release(tx, first)
        [again] = runtime.jobs.claim(tx, "me", 4)
        runtime.jobs.release(tx, again)
        assert runtime.jobs.look(tx, "me", 4) == ([], tx.now + 200)

    def claimed() -> bool:
        with ledger.write() as tx:
            return bool(runtime.jobs.claim(tx, "me", 4))

    eventually(claimed)
    with ledger.read() as tx:
        assert tx.connection.execute(sa.select(sa.func.count()).select_from(job_starts)).scalar() == 1


@pytest.mark.soak
def test_a_database_that_goes_away_and_comes_back_costs_time_and_nothing_else(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path, url: str, request: pytest.FixtureRequest
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("a file does not go away")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    fleet.add()
    file = tmp_path / "marks"
    job_id = enqueue_spell(ledger, runtime, file, 2.0)
    eventually(lambda: len(marks(file)) == 1)
    server.stop("immediate")
    time.sleep(3)
    server.start()
    job = ended(ledger, job_id, 30)
    assert (job.status, job.attempt, job.recoveries) == (JobStatus.FINISHED, 1, 0)
    assert [line.split(":")[0] for line in marks(file)] == ["start", "end"]
    after = enqueue_spell(ledger, runtime, file, 0.1)
    assert ended(ledger, after, 30).status is JobStatus.FINISHED


@pytest.mark.soak
def test_three_processes_may_prepare_one_database_at_once(
    tmp_path: Path, database_url: str, nursery: Nursery
) -> None:
    both = Fleet(tmp_path, database_url, nursery)
    try:
        started = [both.spawn() for _ in range(3)]
        for process in started:
            both.await_ready(process)
    finally:
        both.close()


def test_the_jobs_of_a_worker_that_nobody_knows_are_taken_over(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    """As after a restore: the ledger says that a process works on the job, and no such process exists."""
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")})
        processes.register(tx, "a-process-of-long-ago", "worker", 1)
        assert runtime.jobs.claim(tx, "a-process-of-long-ago", 1)
        processes.leave(tx, "a-process-of-long-ago", reason="test")
    fleet.add()
    assert ended(ledger, job_id).status is JobStatus.FINISHED


def test_a_worker_of_one_run_leaves_the_runs_of_a_dead_worker_alone(
    ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    """Also those that stand before it in its own line: their order is lost, and what they cost is not paid."""
    payload = {"file": str(tmp_path / "marks")}
    with ledger.write() as tx:
        runs = [create_run(tx, "workflow", name) for name in ("other", "before", "behind", "mine")]
        other, before, behind, mine = (
            runtime.enqueue(tx, "note", payload, run_id=run_id, key="key" if run_id != runs[0] else None)
            for run_id in runs
        )
        processes.register(tx, "gone", "worker", 2)
        assert [job.id for job in runtime.jobs.claim(tx, "gone", 2)] == [other, before]
        processes.leave(tx, "gone", reason="test")
    worker = Worker(runtime, run_id=runs[-1])
    worker.start()
    try:
        assert ended(ledger, mine).status is JobStatus.FINISHED
    finally:
        worker.stop(drain_seconds=0)
    left = [look(ledger, job_id) for job_id in (other, before, behind)]
    assert [(job.attempt, job.process_id, job.status.final) for job in left] == [(0, None, False)] * 3
    assert len(marks(tmp_path / "marks")) == 1


@pytest.mark.soak
def test_events_tell_of_the_takeover(fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path) -> None:
    first = fleet.add()
    job_id = enqueue_spell(ledger, runtime, tmp_path / "marks", 0.5)
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    fleet.kill(first)
    fleet.add()
    ended(ledger, job_id)
    with ledger.read() as tx:
        told = [event.type for event in events.since(tx.connection, where=EventFilter(job_id=job_id))]
        left = [event.data for event in events.since(tx.connection, where=EventFilter(type="process.left"))]
    assert told == ["job.recovered"]
    assert {"reason": "died"} in left


@pytest.mark.soak
def test_a_run_whose_job_fails_for_good_has_failed(fleet: Fleet, ledger: Ledger, runtime: Runtime) -> None:
    from ratchet.runtime import start_run

    with ledger.write() as tx:
        run_id = start_run(tx, runtime, "unstorable", kind="workflow", name="broken")
    fleet.add()

    def status() -> RunStatus:
        with ledger.read() as tx:
            return get_run(tx, run_id).status

    eventually(lambda: status() is RunStatus.FAILED)


def _alive(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        return [process.id for process in list_processes(tx) if process.state == "alive"]


def _freeze_between_writes(ledger: Ledger, pid: int) -> None:
    """Frozen while it holds SQLite's write lock, a process would stop everybody: that is SQLite's nature."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        with ledger.engine.connect() as connection:
            if ledger.path is None:
                return
            connection.exec_driver_sql("PRAGMA busy_timeout=200")
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except exc.OperationalError:
                os.kill(pid, signal.SIGCONT)
            else:
                connection.rollback()
                return
            finally:
                connection.invalidate()


def _dies(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
