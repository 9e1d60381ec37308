"""Jobs: what was, is and will be done."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import Field

from ratchet import runtime
from ratchet.ledger import Event, Filter, Transaction
from ratchet.ledger.events import since
from ratchet.ledger.owners import projects_of_runs
from ratchet.runtime import JobStatus, get_job, list_jobs
from ratchet.server.fields import Id, IdFilter, Json, Moment, Shape, TextFilter
from ratchet.server.paging import MAX_LIMIT, Cut, Pager, Paging
from ratchet.server.service import Access, Api

router = APIRouter(tags=["jobs"])
_FAILED_TRIES = ("job.retrying", "job.failed")


class Meta(Shape):
    run_id: int | None
    key: str | None
    priority: int
    background: bool = Field(description="whether it gives way to all other work")
    request_id: str | None
    once: str | None
    stop: str | None = Field(description="why it is to stop, when somebody asked for that")
    process_id: str | None
    recoveries: int = Field(description="workers that died while doing it")
    timeout_ms: int | None


class Job(Shape):
    job_id: int
    job_type: str
    payload: Json
    status: JobStatus
    queue: str
    created_at: Moment
    attempts: int
    max_attempts: int
    next_run_at: Moment | None = Field(description="when a scheduled job is due")
    started_at: Moment | None
    ended_at: Moment | None
    result: Json
    error: str | None
    meta: Meta

    @classmethod
    def of(cls, job: runtime.Job) -> Job:
        return cls.model_validate(_shown(job))


class FailedTry(Shape):
    event_id: int
    at: Moment
    attempt: int | None
    error: str | None
    retry_in_seconds: float | None = Field(
        description="the pause before the next try; null when it was the last"
    )


class JobWithTries(Job):
    failed_tries: list[FailedTry]


@router.get("/queues/jobs")
def jobs(
    api: Api,
    pager: Paging,
    status: JobStatus | None = None,
    queue: TextFilter = None,
    run_id: IdFilter = None,
) -> list[Job]:
    """Newest first. Jobs of projects whose token was not shown are left out."""
    return [Job.of(job) for job in page_of_jobs(api, pager, status, queue, run_id).items]


def page_of_jobs(
    api: Access, pager: Pager, status: JobStatus | None, queue: str | None, run_id: int | None
) -> Cut[runtime.Job]:
    with api.read() as tx:
        found = list_jobs(
            tx, status=status, queue=queue, run_id=run_id, before=pager.before, limit=pager.one_more
        )
        projects = projects_of_runs(tx, {job.run_id for job in found if job.run_id is not None})
        hidden = api.caller.hidden(tx, projects.values())
    return pager.without(found, lambda job: projects.get(job.run_id or 0) in hidden)


@router.get("/queues/jobs/{job_id}")
def job(api: Api, job_id: Id) -> JobWithTries:
    """One job with the tries that failed."""
    with api.read() as tx:
        found = get_job(tx, job_id)
        tries = [_failed_try(event) for event in _failures(tx, job_id)]
    return JobWithTries.model_validate({**_shown(found), "failed_tries": tries})


@router.post("/queues/jobs/{job_id}/cancel")
def cancel(api: Api, job_id: Id) -> Job:
    """Stop a job: at once when nobody works on it, else its worker is asked to, and it ends a moment later."""
    with api.write() as tx:
        api.runtime.jobs.request_stop(tx, job_id, "cancelled on request")
        return Job.of(get_job(tx, job_id))


def _shown(job: runtime.Job) -> dict[str, object]:
    return {
        "job_id": job.id,
        "job_type": job.kind,
        "payload": job.payload,
        "status": job.status,
        "queue": job.queue,
        "created_at": job.created_at,
        "attempts": job.attempt,
        "max_attempts": job.max_attempts,
        "next_run_at": job.due_at if job.status is JobStatus.SCHEDULED else None,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "result": job.result,
        "error": job.error,
        "meta": job,
    }


def _failures(tx: Transaction, job_id: int) -> Sequence[Event]:
    found = since(tx.connection, where=Filter(job_id=job_id, type="job.*"), limit=MAX_LIMIT)
    return [event for event in found if event.type in _FAILED_TRIES]


def _failed_try(event: Event) -> dict[str, object]:
    data = event.data or {}
    return {
        "event_id": event.id,
        "at": event.at,
        "attempt": data.get("attempt"),
        "error": event.message,
        "retry_in_seconds": data.get("retry_in_seconds"),
    }
