"""Queues with their jobs, the processes that do them, and the schedules that make them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.runtime import Job, JobStatus, list_processes
from ratchet.runtime.operations import jobs as of_jobs
from ratchet.runtime.operations import schedules as of_schedules
from ratchet.runtime.processes import is_silent
from ratchet.server.console.buttons import add_buttons
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Id, IdFilter, Paging, TextFilter
from ratchet.server.operation import shown

router = APIRouter()
add_buttons(router, (of_jobs.cancel,), "/queue/jobs/{job_id}")
add_buttons(router, of_jobs.QUEUE_OPERATIONS, "/queue/queues/{name}", "/queue")
add_buttons(
    router, (of_schedules.pause, of_schedules.resume, of_schedules.run), "/queue/schedules/{name}", "/queue"
)


@router.get("/queue")
def queue(
    page: Page,
    pager: Paging,
    status: JobStatus | None = None,
    queue: TextFilter = None,
    run_id: IdFilter = None,
) -> Response:
    found = of_jobs.jobs(page.api, pager, status, queue, run_id)
    document = {
        "queues": [
            {"name": each.name, **shown(of_jobs.QueueAnswer.of(each)).model_dump()}
            for each in of_jobs.list_(page.api).items
        ],
        "processes": _processes(page),
        "schedules": list(map(shown, of_schedules.list_(page.api).items)),
        "jobs": [_shown(each) for each in found.items],
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
    found = of_jobs.show(page.api, job_id)
    document = {"job": shown(of_jobs.show.translated_answer(found)), "why_not_cancel": _why_not_cancel(found)}
    return page.show("job.html", document, title=f"Job {job_id}", live={"job_id": job_id})


def _processes(page: View) -> list[dict[str, Any]]:
    limit = page.api.runtime.settings.runtime.dead_after_seconds
    with page.api.read() as tx:
        return [
            {
                **shown(of_jobs.ProcessAnswer.of(each)).model_dump(),
                "state": "dead" if is_silent(each, tx.now, limit) else each.state,
                "here": each.id == page.api.service.process_id,
            }
            for each in list_processes(tx)
        ]


def _shown(job: Job) -> dict[str, Any]:
    found = shown(of_jobs.JobAnswer.of(job))
    return {**found.model_dump(exclude={"payload", "result"}), "why_not_cancel": _why_not_cancel(job)}


def _why_not_cancel(job: Job) -> str | None:
    if job.stop is not None and not job.status.final:
        return f"job {job.id} was asked to stop already"
    return f"job {job.id} is {job.status}" if job.status.final else None
