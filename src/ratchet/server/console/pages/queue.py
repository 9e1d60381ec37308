"""Queues with their jobs, the processes that do them, and the schedules that make them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.runtime import JobStatus, list_processes
from ratchet.runtime.left_behind import is_silent
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page, View
from ratchet.server.fields import Id, IdFilter, TextFilter
from ratchet.server.paging import Paging
from ratchet.server.routes import jobs as of_jobs
from ratchet.server.routes import queues as of_queues
from ratchet.server.routes import schedules as of_schedules
from ratchet.server.routes.processes import Process

router = APIRouter()
QUEUE = f"{ROOT}/queue"


@router.get("/queue")
def queue(
    page: Page,
    pager: Paging,
    status: JobStatus | None = None,
    queue: TextFilter = None,
    run_id: IdFilter = None,
) -> Response:
    found = of_jobs.page_of_jobs(page.api, pager, status, queue, run_id)
    queues = of_queues.queues(page.api)
    document = {
        "queues": [{"name": name, **each.model_dump()} for name, each in (queues.model_extra or {}).items()],
        "processes": _processes(page),
        "schedules": of_schedules.schedules(page.api).items,
        "jobs": [_shown(of_jobs.Job.of(each)) for each in found.items],
        "next": found.next,
        "status": status,
        "queue": queue,
        "run_id": run_id,
        "statuses": list(JobStatus),
    }
    live: dict[str, Any] | None = {} if pager.before is None else None
    return page.show("queue.html", document, title="Queue and workers", live=live)


@router.get("/queue/jobs/{job_id}")
def job(page: Page, job_id: Id) -> Response:
    found = of_jobs.job(page.api, job_id)
    document = {"job": found, "why_not_cancel": _why_not_cancel(found)}
    return page.show("job.html", document, title=f"Job {job_id}", live={"job_id": job_id})


@router.post("/queue/jobs/{job_id}/actions/cancel")
def cancel(page: Page, _: Acting, job_id: Id) -> Response:
    ended = of_jobs.cancel(page.api, job_id)
    told = "is cancelled" if ended.status is JobStatus.CANCELLED else "is told to stop"
    return page.done(f"Job {job_id} {told}.", f"{QUEUE}/jobs/{job_id}")


@router.post("/queue/queues/{name}/actions/pause")
def pause_queue(page: Page, _: Acting, name: str) -> Response:
    of_queues.pause(page.api, name)
    return page.done(f"Queue {name} is paused; what runs goes on.", QUEUE)


@router.post("/queue/queues/{name}/actions/resume")
def resume_queue(page: Page, _: Acting, name: str) -> Response:
    of_queues.resume(page.api, name)
    return page.done(f"Queue {name} goes on.", QUEUE)


@router.post("/queue/schedules/{name}/actions/pause")
def pause_schedule(page: Page, _: Acting, name: str) -> Response:
    of_schedules.pause(page.api, name)
    return page.done(f"Schedule {name} rests.", QUEUE)


@router.post("/queue/schedules/{name}/actions/resume")
def resume_schedule(page: Page, _: Acting, name: str) -> Response:
    of_schedules.resume(page.api, name)
    return page.done(f"Schedule {name} goes on.", QUEUE)


@router.post("/queue/schedules/{name}/actions/run")
def run_schedule(page: Page, _: Acting, name: str) -> Response:
    started = of_schedules.run_now(page.api, name)
    return page.done(f"Job {started.job_id} of schedule {name} is in line.", QUEUE)


def _processes(page: View) -> list[dict[str, Any]]:
    limit = page.api.runtime.settings.runtime.dead_after_seconds
    with page.api.read() as tx:
        return [
            {
                **Process.model_validate(each).model_dump(),
                "state": "dead" if is_silent(each, tx.now, limit) else each.state,
                "here": each.id == page.api.service.process_id,
            }
            for each in list_processes(tx)
        ]


def _shown(job: of_jobs.Job) -> dict[str, Any]:
    return {**job.model_dump(exclude={"payload", "result"}), "why_not_cancel": _why_not_cancel(job)}


def _why_not_cancel(job: of_jobs.Job) -> str | None:
    if job.meta.stop is not None and not job.status.final:
        return f"job {job.job_id} was told to stop already"
    return f"job {job.job_id} is {job.status}" if job.status.final else None
