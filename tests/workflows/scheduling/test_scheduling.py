"""Workflows that run by the clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from ratchet.flowkit.spec import StepType, WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse, NotFound, RunStatus
from ratchet.ledger import EventFilter, Ledger, events
from ratchet.ledger.runs import Run, list_runs
from ratchet.ledger.workflows import save_workflow
from ratchet.runtime import Job, JobContext, JobStatus, Runtime, list_jobs, list_schedules
from ratchet.runtime.job import BACKGROUND
from ratchet.runtime.processes import register
from ratchet.runtime.schedules import fire
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.jobs import SCHEDULED
from ratchet.workflows.runs import read_outputs
from ratchet.workflows.schedules import schedule_optimisation, schedule_workflow, start_scheduled
from tests.runtime.fleet import Fleet
from tests.waiting import eventually
from tests.workflows.running.tools import python, sums, workflow

ME = "process-1"


def trigger(ledger: Ledger, runtime: Runtime, name: str, hours: int) -> Job:
    """The job of the time that comes in so many hours, started."""
    with ledger.write() as tx:
        register(tx, ME, "worker", 4)
        [job_id] = fire(tx, runtime.jobs, name, time.time() + 3600 * hours)
    with ledger.write() as tx:
        for job in runtime.jobs.claim(tx, ME, 10):
            if job.id == job_id:
                return job
    raise AssertionError("it was not started")


def runs(ledger: Ledger) -> list[Run]:
    with ledger.read() as tx:
        return list_runs(tx, kind="workflow")[::-1]


def deliver(runtime: Runtime, job: Job) -> object:
    return asyncio.run(start_scheduled(JobContext(runtime, job, ME)))


def start(ledger: Ledger, runtime: Runtime, job: Job) -> object:
    """Do the job of one time and record its end."""
    result = deliver(runtime, job)
    with ledger.write() as tx:
        runtime.jobs.finish(tx, job, result)
    return result


def test_each_time_starts_one_run_however_often_its_job_is_delivered(
    ledger: Ledger,
    runtime: Runtime,
) -> None:
    schedule_workflow(runtime, "sums", "hourly", sums(), {"number": 5}, priority=BACKGROUND, actor="test")
    job = trigger(ledger, runtime, "sums", 1)
    first = deliver(runtime, job)
    assert deliver(runtime, job) == first
    [run] = runs(ledger)
    assert first == {"run_id": run.id}
    assert run.spec["inputs"] == {"number": 5}
    with ledger.read() as tx:
        [carrier] = list_jobs(tx, run_id=run.id)
    assert carrier.background


def test_a_run_that_goes_on_keeps_the_next_from_starting(
    ledger: Ledger,
    runtime: Runtime,
) -> None:
    schedule_workflow(runtime, "sums", "hourly", sums(), {"number": 5}, actor="test")
    start(ledger, runtime, trigger(ledger, runtime, "sums", 1))
    skipped = start(ledger, runtime, trigger(ledger, runtime, "sums", 2))
    [run] = runs(ledger)
    assert skipped == {"skipped": f"sums: its run {run.id} has not ended"}
    with ledger.read() as tx:
        [event] = events.since(tx.connection, where=EventFilter(type="schedule.skipped"))
    assert event.run_id == run.id


def test_runs_that_queue_come_one_after_the_other(
    ledger: Ledger,
    runtime: Runtime,
) -> None:
    schedule_workflow(runtime, "sums", "hourly", sums(), {"number": 5}, overlap="queue", actor="test")
    for hours in (1, 2):
        start(ledger, runtime, trigger(ledger, runtime, "sums", hours))
    with ledger.write() as tx:
        runtime.jobs.claim(tx, ME, 10)
    with ledger.read() as tx:
        carriers = [list_jobs(tx, run_id=run.id)[0].status for run in runs(ledger)]
    assert carriers == [JobStatus.STARTED, JobStatus.WAITING]


def test_a_name_means_what_is_saved_under_it_at_each_time(
    ledger: Ledger,
    runtime: Runtime,
) -> None:
    with ledger.write() as tx:
        save_workflow(tx, write_spec(sums()), origin="test")
    schedule_workflow(runtime, "sums", "hourly", "sums", {"number": 5}, actor="test")
    with ledger.write() as tx:
        save_workflow(tx, {**write_spec(sums()), "version": "2.0.0"}, origin="test")
    start(ledger, runtime, trigger(ledger, runtime, "sums", 1))
    [run] = runs(ledger)
    assert run.spec["workflow"]["version"] == "2.0.0"


def test_a_workflow_that_can_no_longer_run_fails_its_job_for_good(
    ledger: Ledger,
    runtime: Runtime,
    tmp_path: Path,
) -> None:
    (tmp_path / "tool.py").write_text("def run():\n    return 1\n")
    step = WorkflowStep("only", StepType.PYTHON_TOOL, tool_path="tool.py")
    schedule_workflow(
        runtime, "files", "hourly", WorkflowSpec("files", steps=(step,)), folder=tmp_path, actor="test"
    )
    (tmp_path / "tool.py").unlink()
    job = trigger(ledger, runtime, "files", 1)
    with pytest.raises(Misuse, match=r"schedule files: step only: tool\.py"):
        deliver(runtime, job)
    assert runs(ledger) == []


def test_a_workflow_that_could_not_run_is_not_scheduled(ledger: Ledger, runtime: Runtime) -> None:
    broken = workflow("broken", python("only", "absent"))
    with pytest.raises(BadWorkflow, match="absent"):
        schedule_workflow(runtime, "broken", "hourly", broken, actor="test")
    with pytest.raises(BadWorkflow, match="number"):
        schedule_workflow(runtime, "sums", "hourly", sums(), {}, actor="test")
    with pytest.raises(NotFound):
        schedule_workflow(runtime, "none", "hourly", "none", actor="test")
    with pytest.raises(Misuse, match="says nothing exact"):
        schedule_workflow(runtime, "sums", "whenever", sums(), {"number": 5}, actor="test")
    with pytest.raises(Misuse, match="overlapping runs"):
        schedule_workflow(runtime, "sums", "hourly", sums(), {"number": 5}, overlap="pile up", actor="test")
    with pytest.raises(Misuse, match="budget_usd must be above 0"):
        schedule_optimisation(runtime, "night", "every night at 2", budget_usd=0, actor="test")
    with ledger.read() as tx:
        assert list_schedules(tx) == []


@pytest.mark.soak
def test_a_scheduled_workflow_runs_on_workers_that_are_killed(
    fleet: Fleet,
    ledger: Ledger,
    runtime: Runtime,
) -> None:
    schedule_workflow(
        runtime, "sums", "every 2 seconds", sums(), {"number": 5}, overlap="queue", missed="all", actor="test"
    )
    killed = fleet.add()
    eventually(lambda: len(runs(ledger)) >= 1)
    fleet.kill(killed)
    fleet.add()

    def completed() -> list[Run]:
        return [run for run in runs(ledger) if run.status is RunStatus.COMPLETED]

    eventually(lambda: len(completed()) >= 2)
    with ledger.read() as tx:
        found = list_jobs(tx, limit=500)
    times = [job.once for job in found if job.kind == SCHEDULED]
    started = [job.run_id for job in found if (job.once or "").startswith("scheduled:")]
    assert len(set(times)) == len(times)
    assert len(set(started)) == len(started)
    assert {run.id for run in completed()[:2]} <= set(started)
    assert read_outputs(ledger.artifacts, completed()[0]) == {"sum": 31}
