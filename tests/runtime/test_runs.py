"""Runs as durable work: steps are done once, and a run can be paused, resumed and cancelled while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.config import Loaded
from ratchet.kernel import Conflict, IllegalTransition, Outcome, RunStatus, StepStatus, Waiting
from ratchet.ledger import EventFilter, Ledger, change_run, change_step, events
from ratchet.ledger.check import check
from ratchet.ledger.runs import create_steps, get_run, get_step, list_attempts, list_steps, open_attempt
from ratchet.ledger.tables import jobs
from ratchet.runtime import (
    JobContext,
    JobStatus,
    Kinds,
    Runtime,
    Worker,
    cancel_run,
    complete_run,
    enter_run,
    list_jobs,
    open_runtime,
    pause_run,
    processes,
    resume_run,
    run_step,
    start_run,
)
from ratchet.runtime.attempts import take_attempt
from ratchet.runtime.job import lock_job
from ratchet.runtime.runs import carry_again
from tests.runtime.kinds import mark, marks
from tests.runtime.worker_process import load
from tests.waiting import eventually


async def block(job: JobContext) -> Any:
    """Block the run and linger, as one that tidies up does; resumed, complete it."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
        if _exists(run.spec["go"]):
            complete_run(tx, job.run_id, "done")
            return
        change_run(tx, job.run_id, RunStatus.BLOCKED, reason="the key is wrong")
    if run.spec.get("fails"):
        raise ValueError("tidying up failed")
    await asyncio.Event().wait()


async def walk(job: JobContext) -> Any:
    """Do the run's steps one by one; those in `holds` continue only when the file `go` exists."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)

    def work(name: str) -> Any:
        async def done(_: object) -> str:
            mark(run.spec["file"], f"start:{name}")
            while name in run.spec["holds"] and not _exists(run.spec["go"]):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)
            if name == run.spec.get("fails"):
                raise ValueError(f"{name} cannot be done")
            mark(run.spec["file"], f"end:{name}")
            return name.upper()

        return done

    results = [await run_step(job, name, work(name)) for name in ("one", "two", "three")]
    with job.write() as tx:
        complete_run(tx, job.run_id, results)
    return results


async def devour(job: JobContext) -> Any:
    """Ask for more memory than there can be, until the file `go` exists."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    if not _exists(run.spec["go"]):
        bytearray(1 << 60)
    with job.write() as tx:
        complete_run(tx, job.run_id, "done")


@pytest.fixture
def runtime(loaded: Loaded, ledger: Ledger) -> Runtime:
    kinds = Kinds()
    kinds.add("walk", walk)
    kinds.add("block", block)
    return open_runtime(loaded, ledger, kinds)


def start(
    ledger: Ledger, runtime: Runtime, file: Path, *holds: str, line: str | None = None, **more: object
) -> int:
    spec = {"file": str(file), "holds": holds, "go": str(_go(file)), **more}
    with ledger.write(actor="test") as tx:
        return start_run(tx, runtime, "walk", kind="workflow", name="walk", spec=spec, line=line)


def _exists(file: str) -> bool:
    return Path(file).exists()


def _go(file: Path) -> Path:
    return file.with_name(f"{file.name}-go")


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


def test_a_run_goes_through_its_steps_and_keeps_their_results(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    run_id = start(ledger, runtime, tmp_path / "marks")
    eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)
    with ledger.read() as tx:
        run, steps = get_run(tx, run_id), list_steps(tx, run_id)
    assert run.result == ["ONE", "TWO", "THREE"]
    assert [(step.name, step.status, step.result) for step in steps] == [
        ("one", StepStatus.COMPLETED, "ONE"),
        ("two", StepStatus.COMPLETED, "TWO"),
        ("three", StepStatus.COMPLETED, "THREE"),
    ]


def test_pausing_reaches_the_running_step_and_resuming_repeats_no_finished_one(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file, "two")
    eventually(lambda: "start:two" in marks(file))
    with ledger.write() as tx:
        pause_run(tx, runtime, run_id)
    eventually(lambda: _job_statuses(ledger, run_id) == [JobStatus.CANCELLED])
    assert status(ledger, run_id) is RunStatus.PAUSED
    assert "end:two" not in marks(file)
    _go(file).touch()
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)
    assert marks(file).count("start:one") == 1
    assert marks(file).count("start:two") == 2
    with ledger.read() as tx:
        tries = list_attempts(tx, list_steps(tx, run_id)[1].id)
    assert [attempt.outcome for attempt in tries] == [Outcome.ERROR, Outcome.PASSED]


def test_runs_of_one_line_come_one_after_the_other_also_after_a_pause(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    runs = [start(ledger, runtime, file, "two", line="agent") for file in (first, second)]
    eventually(lambda: "start:two" in marks(first))
    with ledger.write() as tx:
        pause_run(tx, runtime, runs[0])
    eventually(lambda: "start:two" in marks(second))
    with ledger.write() as tx:
        resume_run(tx, runtime, runs[0])
    _go(first).touch()
    _go(second).touch()
    eventually(lambda: status(ledger, runs[0]) is RunStatus.COMPLETED)
    assert status(ledger, runs[1]) is RunStatus.COMPLETED
    with ledger.read() as tx:
        resumed = list_jobs(tx, run_id=runs[0], limit=1)[0]
        [other] = list_jobs(tx, run_id=runs[1])
    assert resumed.started_at is not None
    assert other.ended_at is not None
    assert resumed.started_at >= other.ended_at


def test_cancelling_ends_everything_in_the_run_for_good(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file, "two")
    eventually(lambda: "start:two" in marks(file))
    with ledger.write() as tx:
        cancel_run(tx, runtime, run_id)
        cancel_run(tx, runtime, run_id)
    eventually(lambda: _job_statuses(ledger, run_id) == [JobStatus.CANCELLED])
    with ledger.read() as tx:
        run, steps = get_run(tx, run_id), list_steps(tx, run_id)
        open_ones = [
            attempt for step in steps for attempt in list_attempts(tx, step.id) if not attempt.ended_at
        ]
    assert run.status is RunStatus.CANCELLED
    assert [step.status for step in steps] == [StepStatus.COMPLETED, StepStatus.CANCELLED]
    assert open_ones == []
    with pytest.raises(IllegalTransition, match="that is final"), ledger.write() as tx:
        pause_run(tx, runtime, run_id)
    with pytest.raises(Conflict), ledger.write() as tx:
        resume_run(tx, runtime, run_id)


def test_a_worker_that_has_not_heard_of_the_cancelling_begins_nothing_more(
    ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    run_id = start(ledger, runtime, tmp_path / "marks")
    with ledger.write() as tx:
        processes.register(tx, "somewhere", "worker", 1)
        [job] = runtime.jobs.claim(tx, "somewhere", 1)
        enter_run(tx, run_id)
        cancel_run(tx, runtime, run_id)
    context = JobContext(runtime, job, "somewhere")

    async def never(_: object) -> None:
        raise AssertionError("the run is cancelled")

    with pytest.raises(Waiting, match="is cancelled"):
        asyncio.run(run_step(context, "one", never))
    with pytest.raises(Waiting, match="is cancelled"):
        take_attempt(context, "two", nth=1)
    with ledger.read() as tx:
        assert list_steps(tx, run_id) == []


def test_a_run_that_was_resumed_is_not_failed_by_the_job_that_was_to_stop(
    ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    run_id = start(ledger, runtime, tmp_path / "marks")
    with ledger.write() as tx:
        processes.register(tx, "somewhere", "worker", 1)
        [job] = runtime.jobs.claim(tx, "somewhere", 1)
        enter_run(tx, run_id)
    with ledger.write() as tx:
        pause_run(tx, runtime, run_id)
        resume_run(tx, runtime, run_id)
    with ledger.write() as tx:
        runtime.jobs.fail(tx, job, "the run is paused, not running", final=True)
    assert status(ledger, run_id) is RunStatus.RUNNING
    assert sorted(_job_statuses(ledger, run_id)) == [JobStatus.FAILED, JobStatus.QUEUED]


def test_a_late_delivery_does_not_revive_a_cancelled_run(
    ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    """Cancelled while its job still waits in the queue; the worker comes afterwards."""
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file)
    with ledger.write() as tx:
        cancel_run(tx, runtime, run_id)
    late = Worker(runtime)
    late.start()
    try:
        with ledger.write() as tx:
            other = start_run(
                tx, runtime, "walk", kind="workflow", name="walk", spec={"file": str(file), "holds": []}
            )
        eventually(lambda: status(ledger, other) is RunStatus.COMPLETED)
    finally:
        late.stop(drain_seconds=5)
    assert status(ledger, run_id) is RunStatus.CANCELLED
    assert marks(file).count("start:one") == 1


@pytest.mark.soak
def test_a_step_that_raises_fails_and_after_the_last_try_the_run_has_failed(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    run_id = start(ledger, runtime, tmp_path / "marks", fails="two")
    eventually(lambda: status(ledger, run_id) is RunStatus.FAILED)
    with ledger.read() as tx:
        run, steps = get_run(tx, run_id), list_steps(tx, run_id)
        tries = list_attempts(tx, steps[1].id)
    assert "two cannot be done" in (run.reason or "")
    assert [step.status for step in steps] == [StepStatus.COMPLETED, StepStatus.FAILED]
    assert [attempt.outcome for attempt in tries] == [Outcome.ERROR] * 3
    assert marks(tmp_path / "marks").count("start:one") == 1


def _job_statuses(ledger: Ledger, run_id: int) -> list[JobStatus]:
    with ledger.read() as tx:
        return [job.status for job in list_jobs(tx, run_id=run_id)]


def test_a_run_whose_carrying_job_is_cancelled_is_blocked_and_can_be_resumed(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file, "one")
    eventually(lambda: "start:one" in marks(file))
    with ledger.write() as tx:
        [job] = list_jobs(tx, run_id=run_id)
        runtime.jobs.request_stop(tx, job.id, "by mistake")
    eventually(lambda: status(ledger, run_id) is RunStatus.BLOCKED)
    _go(file).touch()
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)


def test_a_run_that_is_resumed_before_its_worker_has_stopped_goes_on(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file, "two")
    eventually(lambda: "start:two" in marks(file))
    with ledger.write() as tx:
        pause_run(tx, runtime, run_id)
        resume_run(tx, runtime, run_id)
    # Let go earlier, the first job could finish its work before it hears that it should stop.
    eventually(lambda: JobStatus.CANCELLED in _job_statuses(ledger, run_id))
    _go(file).touch()
    eventually(lambda: status(ledger, run_id).final or status(ledger, run_id) is RunStatus.BLOCKED)
    assert status(ledger, run_id) is RunStatus.COMPLETED
    eventually(lambda: _job_statuses(ledger, run_id) == [JobStatus.FINISHED, JobStatus.CANCELLED])
    assert marks(file).count("start:one") == 1


def test_a_worker_that_leaves_gives_no_job_back_whose_stop_was_asked_for(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    run_id = start(ledger, runtime, file, "two")
    eventually(lambda: "start:two" in marks(file))
    with ledger.write() as tx:
        pause_run(tx, runtime, run_id)
        [job] = list_jobs(tx, run_id=run_id)
        runtime.jobs.release(tx, job)
    assert _job_statuses(ledger, run_id) == [JobStatus.CANCELLED]
    assert status(ledger, run_id) is RunStatus.PAUSED


@pytest.mark.parametrize(
    "end", ["the worker stops", "the worker dies", "the handler fails", "a late delivery"]
)
def test_a_run_that_its_job_has_blocked_keeps_its_reason_and_can_be_resumed(
    ledger: Ledger, runtime: Runtime, tmp_path: Path, end: str
) -> None:
    go = tmp_path / "go"
    spec = {"go": str(go), "fails": end == "the handler fails"}
    with ledger.write(actor="test") as tx:
        run_id = start_run(tx, runtime, "block", kind="research", name="walk", spec=spec)
    worker = Worker(runtime)
    worker.start()
    eventually(lambda: status(ledger, run_id) is RunStatus.BLOCKED)
    if end == "the handler fails":
        eventually(lambda: _job_statuses(ledger, run_id) == [JobStatus.FAILED])
    elif end == "the worker dies":
        with ledger.write() as tx:
            assert runtime.jobs.take_over(tx, worker.process_id) == 1
    worker.stop(drain_seconds=0)
    if end == "a late delivery":
        with ledger.write() as tx:
            carry_again(tx, runtime, run_id)
    later = Worker(runtime)
    later.start()
    try:
        eventually(lambda: all(each.final for each in _job_statuses(ledger, run_id)))
        with ledger.read() as tx:
            run = get_run(tx, run_id)
        assert (run.status, run.reason) == (RunStatus.BLOCKED, "the key is wrong")
        go.touch()
        with ledger.write() as tx:
            resume_run(tx, runtime, run_id)
        eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)
        eventually(lambda: _job_statuses(ledger, run_id)[0] is JobStatus.FINISHED)
    finally:
        later.stop(drain_seconds=0)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("action", [pause_run, cancel_run])
def test_stopping_a_run_waits_for_what_its_worker_is_writing(
    ledger: Ledger, runtime: Runtime, tmp_path: Path, action: Callable[..., None]
) -> None:
    """A worker that writes holds its job and then needs the run; who stops it must not hold these the other way."""
    run_id = start(ledger, runtime, tmp_path / "marks")

    def act() -> None:
        with ledger.write() as tx:
            action(tx, runtime, run_id)

    with ThreadPoolExecutor(1) as other:
        with ledger.write() as tx:
            [job] = list_jobs(tx, run_id=run_id)
            lock_job(tx, job.id)
            acting = other.submit(act)
            eventually(lambda: _somebody_waits(ledger))
            [step_id] = create_steps(tx, run_id, [("one", {})])
            open_attempt(tx, get_step(tx, step_id))
        acting.result()
    assert status(ledger, run_id) in (RunStatus.PAUSED, RunStatus.CANCELLED)


def _somebody_waits(ledger: Ledger) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with ledger.read() as tx:
        return bool(tx.connection.execute(sa.text(waiting)).scalar())


def die_with(ledger: Ledger, runtime: Runtime, run_id: int, work: Callable[[JobContext], None]) -> None:
    """Let a process claim the run's job, do something for it, and be gone."""
    name = "host-1-gone"
    with ledger.write() as tx:
        processes.register(tx, name, "worker", 1)
        [job] = runtime.jobs.claim(tx, name, 1, run_id)
    work(JobContext(runtime, job, name))
    with ledger.write() as tx:
        runtime.jobs.take_over(tx, name)
        processes.leave(tx, name, reason="died")


def test_a_run_that_makes_progress_outlives_any_number_of_its_workers(ledger: Ledger, tmp_path: Path) -> None:
    runtime = open_with(ledger, tmp_path, **{"runtime.max_recoveries": 2})
    run_id = start(ledger, runtime, tmp_path / "marks")

    def step(name: str) -> Callable[[JobContext], None]:
        async def work(_: object) -> None:
            pass

        return lambda job: asyncio.run(run_step(job, name, work))

    for number in range(7):
        die_with(ledger, runtime, run_id, step(f"step-{number}"))
    assert _job_statuses(ledger, run_id) == [JobStatus.QUEUED]


def test_a_run_whose_workers_die_without_progress_is_blocked_with_its_steps_and_can_be_resumed(
    ledger: Ledger, tmp_path: Path
) -> None:
    runtime = open_with(ledger, tmp_path, **{"runtime.max_recoveries": 2})
    run_id = start(ledger, runtime, tmp_path / "marks")

    def begin(job: JobContext) -> None:
        with job.write() as tx:
            if get_run(tx, run_id).status is RunStatus.PENDING:
                enter_run(tx, run_id)
                change_step(tx, create_steps(tx, run_id, [("one", {})])[0], StepStatus.RUNNING)
            # Closes the one that the dead worker left, which is no progress.
            open_attempt(tx, list_steps(tx, run_id)[0], process_id=job.process_id)

    for _ in range(3):
        assert status(ledger, run_id) is not RunStatus.BLOCKED
        die_with(ledger, runtime, run_id, begin)
    with ledger.read() as tx:
        run, [step] = get_run(tx, run_id), list_steps(tx, run_id)
        tries = list_attempts(tx, step.id)
    assert (run.status, step.status) == (RunStatus.BLOCKED, StepStatus.BLOCKED)
    assert "died 3 times in a row without progress" in (run.reason or "")
    assert {attempt.outcome for attempt in tries} == {Outcome.ERROR}
    assert check(ledger).findings == ()
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    worker = Worker(runtime)
    worker.start()
    try:
        eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)
    finally:
        worker.stop(drain_seconds=0)


def test_a_step_left_running_without_a_job_is_found(ledger: Ledger, runtime: Runtime, tmp_path: Path) -> None:
    run_id = start(ledger, runtime, tmp_path / "marks")
    with ledger.write() as tx:
        enter_run(tx, run_id)
        change_step(tx, create_steps(tx, run_id, [("one", {})])[0], StepStatus.RUNNING)
    assert check(ledger).ok
    with ledger.write() as tx:
        tx.connection.execute(sa.update(jobs).values(status="failed", ended_at=tx.now))
    [finding] = check(ledger).findings
    assert f"run {run_id} is running, and 1 of its steps" in finding.what
    with ledger.write() as tx:
        change_run(tx, run_id, RunStatus.FAILED)
    [finding] = check(ledger).findings
    assert (finding.severity, check(ledger).ok) == ("warning", True)


def test_a_run_that_takes_all_the_memory_itself_is_blocked_in_the_end_and_can_be_resumed(
    ledger: Ledger, tmp_path: Path
) -> None:
    runtime = open_with(ledger, tmp_path, **{"runtime.max_recoveries": 2})
    with ledger.write(actor="test") as tx:
        spec = {"go": str(tmp_path / "go")}
        run_id = start_run(tx, runtime, "devour", kind="workflow", name="devour", spec=spec)
    worker = Worker(runtime)
    worker.start()
    try:
        eventually(lambda: status(ledger, run_id) is RunStatus.BLOCKED)
        with ledger.read() as tx:
            run = get_run(tx, run_id)
            told = [each.type for each in events.since(tx.connection, where=EventFilter(run_id=run_id))]
        assert (run.reason or "").startswith("out of memory: MemoryError (3 times in a row without progress")
        assert told.count("job.retrying") == 2
        Path(spec["go"]).touch()
        with ledger.write() as tx:
            resume_run(tx, runtime, run_id)
        eventually(lambda: status(ledger, run_id) is RunStatus.COMPLETED)
    finally:
        worker.stop(drain_seconds=0)


def open_with(ledger: Ledger, home: Path, **flags: object) -> Runtime:
    kinds = Kinds()
    kinds.add("walk", walk)
    kinds.add("devour", devour)
    return open_runtime(load(home, ledger.url, **flags), ledger, kinds)
