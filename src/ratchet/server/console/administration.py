"""What this server does: its queues, workers and schedules, what was used of budgets, and its settings."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from ratchet import __version__
from ratchet.config import Loaded
from ratchet.doctor import disk, python
from ratchet.ledger import Transaction
from ratchet.ledger.attention import BudgetStanding, budget_standings, open_runs, usage_report
from ratchet.ledger.check import ledger_size
from ratchet.ledger.projects import list_projects
from ratchet.operations import Window
from ratchet.runtime import Job, JobStatus, configured_budgets, list_processes
from ratchet.runtime.operations import jobs as of_jobs
from ratchet.runtime.operations import schedules as of_schedules
from ratchet.runtime.processes import is_silent
from ratchet.server.console.forms import add_buttons
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Id, IdFilter, Paging, TextFilter
from ratchet.server.operation import shown
from ratchet.server.overview import MOVING, STANDING, visible_runs
from ratchet.server.service import Access

router = APIRouter()
add_buttons(router, (of_jobs.cancel,), "/queue/jobs/{job_id}")
add_buttons(router, of_jobs.QUEUE_OPERATIONS, "/queue/queues/{name}", "/queue")
add_buttons(
    router, (of_schedules.pause, of_schedules.resume, of_schedules.run), "/queue/schedules/{name}", "/queue"
)


# What runs now is shown as far as a page can be read.
_AT_WORK = 200


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


@router.get("/queue/nodes")
def nodes(page: Page) -> Response:
    at_work = of_jobs.jobs(page.api, Window(limit=_AT_WORK), JobStatus.STARTED).items
    processes = _processes(page)
    host_of = {each["id"]: each["host"] for each in processes}
    document = {
        "nodes": [
            {
                **shown(each).model_dump(),
                "processes": [
                    process
                    for process in processes
                    if each.kind == "machine" and process["host"] == each.name
                ],
                "jobs": [
                    _shown(job)
                    for job in at_work
                    if each.kind == "machine" and host_of.get(str(job.process_id)) == each.name
                ],
            }
            for each in of_jobs.nodes(page.api).items
        ],
        "most": _AT_WORK,
        "more": len(at_work) == _AT_WORK,
    }
    return page.show("nodes.html", document, title="Nodes", live={})


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


_PACKAGES = ("sqlalchemy", "fastapi", "uvicorn", "pydantic", "mcp", "claude-agent-sdk")
_GIVEN = ("projects", "runs", "steps", "attempts", "trials", "sessions", "events", "artifacts", "jobs")


@router.get("/settings")
def settings(page: Page, search: TextFilter = None) -> Response:
    loaded = page.api.service.loaded
    size = ledger_size(page.api.ledger)
    document = {
        "tables": _tables(loaded, search),
        "search": search,
        "ignored": loaded.ignored,
        "home": str(loaded.home),
        "versions": {"ratchet": __version__, "python": platform.python_version(), **_packages()},
        "ledger": {
            "database": size.database,
            "bytes": size.bytes,
            "schema": size.schema,
            "rows": {name: size.given[name] for name in _GIVEN},
        },
        "listening": _listening(page),
        "checks": [asdict(each) for each in (*python(), *disk(loaded.home))],
    }
    return page.show("settings.html", document, title="Settings")


def _tables(loaded: Loaded, search: str | None) -> list[dict[str, Any]]:
    """The settings, table by table; with `search` only those whose name or description has it."""
    wanted = (search or "").casefold()
    found = [
        each for each in loaded.describe() if wanted in f"{each.origin.key} {each.description}".casefold()
    ]
    return [
        {
            "name": table,
            "settings": [
                {
                    "key": each.origin.key,
                    "value": each.origin.value,
                    "default": each.default,
                    "source": each.origin.source,
                    "where": each.origin.where,
                    "description": each.description,
                }
                for each in together
            ],
        }
        for table, together in groupby(found, key=lambda each: each.table)
    ]


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _listening(page: View) -> dict[str, Any]:
    host, port = page.request.scope.get("server") or ("", None)
    return {
        "host": host,
        "port": port,
        "process": page.api.service.process_id,
        "serves_agents": page.api.service.host is not None,
    }


_WIDTH, _HEIGHT = 900, 120
_WIDEST, _GAP = 28, 1
_LEAST = 2


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: int
    width: float
    height: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bars:
    width: int
    height: int
    bars: Sequence[Bar]


def bars(values: Sequence[tuple[str, float]]) -> Bars:
    """From left to right, the highest over the whole height. What is above nothing can always be seen."""
    highest = max((value for _, value in values), default=0)
    space = min(_WIDEST, _WIDTH / max(1, len(values)))
    drawn = []
    for place, (name, value) in enumerate(values):
        height = max(_LEAST, round(value / highest * _HEIGHT)) if value > 0 else 0
        x, width = round(place * space, 2), round(max(1, space - _GAP), 2)
        drawn.append(Bar(x, _HEIGHT - height, width, height, name, value))
    return Bars(max(1, round(space * len(values))), _HEIGHT, drawn)


_BUDGETS = 50
_MEASURES = ("tokens", "cost_usd", "wall_seconds", "trials")


def usage_of(api: Access, tx: Transaction, days: int) -> dict[str, Any]:
    """Everything that was used in the last `days` days, without projects that the caller may not see."""
    return usage_report(tx, days, hidden=lambda projects: api.caller.hidden(tx, projects))


def budgets_of(api: Access, tx: Transaction) -> dict[str, Any]:
    """The configured limits, and how the runs that have not ended and the projects stand to theirs."""
    defaults = configured_budgets(api.runtime.settings)
    open_now = visible_runs(api, tx, open_runs(tx, *MOVING, *STANDING, limit=_BUDGETS))
    projects = [each.id for each in list_projects(tx, limit=_BUDGETS)]
    hidden = api.caller.hidden(tx, projects)
    seen = [number for number in projects if number not in hidden]
    standings = [
        *budget_standings(tx, "run", [run.id for run in open_now], defaults),
        *budget_standings(tx, "project", seen, defaults),
    ]
    return {
        "policy": defaults.policy,
        "configured": [
            {"scope": scope, **{name: getattr(limits, name) for name in _MEASURES}}
            for scope, limits in defaults.limits.items()
        ],
        "standings": [row for each in standings for row in _rows(each)],
    }


def _rows(standing: BudgetStanding) -> list[dict[str, Any]]:
    return [
        {
            "scope": standing.scope,
            "scope_id": standing.scope_id,
            "policy": standing.policy,
            "measure": name,
            "limit": limit,
            "used": getattr(standing.used, name),
            "left": getattr(standing.left, name),
            "exhausted": getattr(standing.used, name) >= limit,
        }
        for name in _MEASURES
        if (limit := getattr(standing.limits, name)) is not None
    ]


Days = Annotated[int, Query(ge=1, le=366, description="how far back, today among them")]


@router.get("/usage")
def usage(page: Page, days: Days = 30) -> Response:
    with page.api.read() as tx:
        used = usage_of(page.api, tx, days)
        budgets = budgets_of(page.api, tx)
    by_day = {each["day"]: each for each in used["by_day"]}
    measure = "cost_usd" if used["total"]["cost_usd"] else "tokens"
    document = {
        "days": days,
        "usage": used,
        "budgets": budgets,
        "measure": measure,
        "bars": bars([(day, by_day.get(day, {measure: 0})[measure]) for day in used["period"]]),
    }
    return page.show("usage.html", document, title="Usage and budgets", live={"type": "session.ended"})
