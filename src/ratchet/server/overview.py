"""What waits for a person, over all flows: each with why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import NotFound, RunStatus, StepStatus
from ratchet.ledger import Event, EventFilter, Run, Transaction
from ratchet.ledger.attention import (
    StepCounts,
    budget_standings,
    count_steps,
    open_runs,
    quarantined_agents,
    questions_of,
    steps_awaiting_review,
)
from ratchet.ledger.events import latest
from ratchet.ledger.production import open_drift, splits_that_ask
from ratchet.ledger.projects import projects_of_runs
from ratchet.ledger.questions import ApprovalStatus, list_approvals
from ratchet.ledger.research import get_standing, list_specialists
from ratchet.ledger.runs import list_runs
from ratchet.runtime import JobStatus, anybody_works, configured_budgets, count_jobs
from ratchet.runtime.processes import left_behind
from ratchet.server.operation import shown
from ratchet.server.service import Access

KINDS = ("protocol", "research", "workflow", "agent")
MOVING = (RunStatus.PENDING, RunStatus.PLANNING, RunStatus.PLANNED, RunStatus.RUNNING)
STANDING = (RunStatus.PAUSED, RunStatus.BLOCKED)
_SHOWN = 200
# What people want to hear of; what sessions say and servers do meanwhile would drown it.
_OF_RUNS = ("created", "completed", "failed", "blocked", "cancelled", "paused")
_OF_AGENTS = (
    *("created", "failed", "feedback", "promoted", "rolled_back", "quarantined", "crashed", "deleted"),
    *("incident", "traffic", "held"),
)
_OF_TOOLS = ("promoted", "refused", "rolled_back")
_TOLD = (
    *("approval.*", "project.*", "budget.*", "setup_*"),
    *(f"run.{what}" for what in _OF_RUNS),
    *(f"agent.{what}" for what in _OF_AGENTS),
    *(f"tool.{what}" for what in _OF_TOOLS),
)


def going_on(api: Access, tx: Transaction) -> list[dict[str, Any]]:
    """The runs that move, newest first, with how far they are; not those that the caller may not see."""
    return _with_progress(tx, visible_runs(api, tx, open_runs(tx, *MOVING, limit=_MOST))[:_MOST])


def ended(api: Access, tx: Transaction, *, limit: int) -> list[dict[str, Any]]:
    """Those of the newest runs that are over, with how far they came; not those that the caller may not see."""
    found = visible_runs(api, tx, list_runs(tx, limit=_MOST))
    return _with_progress(tx, [run for run in found if run.status not in (*MOVING, *STANDING)][:limit])


def _with_progress(tx: Transaction, found: Sequence[Run]) -> list[dict[str, Any]]:
    counted = count_steps(tx, [run.id for run in found if run.kind != "research"])
    return [
        {
            **shown(run).model_dump(exclude={"spec", "result"}),
            "progress": progress(tx, run, counted.get(run.id)),
        }
        for run in found
    ]


def visible_runs(api: Access, tx: Transaction, found: Sequence[Run]) -> list[Run]:
    hidden = api.caller.hidden(tx, (run.project_id for run in found))
    return [run for run in found if run.project_id not in hidden]


def progress(tx: Transaction, run: Run, counts: StepCounts | None) -> dict[str, Any]:
    """How far a run is: `done` of `total`, where that is known, and the same in words."""
    if run.kind == "research":
        return _of_research(tx, run)
    told = run.spec.get("message") if run.kind == "agent" and isinstance(run.spec, dict) else None
    if counts is None or counts.total == 0:
        return {"done": None, "total": None, "words": str(told) if told else "no steps yet"}
    done = counts.by_status[StepStatus.COMPLETED]
    steps = f"{counts.total}{'' if counts.whole else ' or more'} step{'' if counts.total == 1 else 's'}"
    return {
        "done": done,
        "total": counts.total if counts.whole else None,
        "words": str(told) if told else f"{done} of {steps}",
    }


def lately(api: Access, tx: Transaction, *, limit: int) -> list[Event]:
    """What happened last, in large steps."""
    found = [
        event
        for family in _TOLD
        for event in latest(tx.connection, where=EventFilter(type=family), limit=limit)
    ]
    hidden = api.caller.hidden(tx, (event.project_id for event in found))
    seen = [event for event in found if event.project_id not in hidden]
    return sorted(seen, key=lambda event: event.id, reverse=True)[:limit]


def _of_research(tx: Transaction, run: Run) -> dict[str, Any]:
    try:
        standing = get_standing(tx, run.id)
    except NotFound:
        return {"done": None, "total": None, "words": "no trials yet"}
    wanted = run.spec.get("trials") if isinstance(run.spec, dict) else None
    total = wanted if isinstance(wanted, int) and wanted > 0 else None
    best = "" if standing.best_score is None else f", best {standing.score_field} {standing.best_score:.6g}"
    of = "" if total is None else f" of {total}"
    noun = "trial" if (total or standing.trials) == 1 else "trials"
    words = f"{standing.trials}{of} {noun}{best}{_failing(tx, run)}"
    return {"done": standing.trials, "total": total, "words": words}


def _failing(tx: Transaction, run: Run) -> str:
    """What the sessions of a run fail of, which would look like work otherwise."""
    failing = [each for each in list_specialists(tx, run.id) if each.failures and each.problem]
    told = (f"{each.name} failed {each.failures}×: {str(each.problem)[:_SHOWN]}" for each in failing)
    return f"; {'; '.join(told)}" if failing and run.status in MOVING else ""


_MOST = 20
_FAILED = 5
_FAILED_DAYS = 7
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Need:
    """`kind` says what waits. `next` is what to do, in words, and `command` the same in a terminal.

    `path` leads to the page of it below the console. An approval can be given right there.
    """

    kind: str
    title: str
    why: str
    next: str
    command: str
    path: str
    at: int | None = None
    run_id: int | None = None
    approval_id: int | None = None
    simulated: bool = False


def needed(api: Access, tx: Transaction) -> list[Need]:
    """What waits most first. Things of projects that the caller may not see are left out."""
    standing = visible_runs(api, tx, open_runs(tx, *STANDING, limit=_MOST))
    moving = visible_runs(api, tx, open_runs(tx, *MOVING, limit=_MOST))
    asked = [*_questions(tx, [*standing, *moving]), *_approvals(api, tx)]
    explained = {need.run_id for need in asked}
    blocked = [run for run in standing if run.status is RunStatus.BLOCKED and run.id not in explained]
    return [
        *asked,
        *map(_blocked, blocked),
        *_exhausted(api, tx, [*standing, *moving]),
        *_quarantined(tx),
        *_production(tx),
        *_workers(api, tx),
        *_reviews(tx, [*standing, *moving]),
        *(_paused(run) for run in standing if run.status is RunStatus.PAUSED and run.id not in explained),
        *_failed(api, tx),
    ]


def _questions(tx: Transaction, found: Sequence[Run]) -> Iterator[Need]:
    runs: dict[int, Run] = {run.id: run for run in found}
    for asked in questions_of(tx, found, limit=_MOST):
        run = runs.get(asked.run_id or 0)
        yield Need(
            "question",
            asked.question,
            f"{asked.applies_to} of {'the project' if run is None else run.name} waits for the answer",
            "answer it",
            f"ratchet project answer {asked.project_id} {asked.id} ANSWER",
            f"/projects/{asked.project_id}" if asked.run_id is None else f"/runs/{asked.run_id}",
            at=asked.created_at,
            run_id=asked.run_id,
            simulated=run is not None and run.simulated,
        )


def _approvals(api: Access, tx: Transaction) -> Iterator[Need]:
    found = list_approvals(tx, status=ApprovalStatus.PENDING, limit=_MOST)
    projects = projects_of_runs(tx, {each.run_id for each in found if each.run_id is not None})
    hidden = api.caller.hidden(tx, projects.values())
    for each in found:
        if projects.get(each.run_id or 0) not in hidden:
            yield Need(
                "approval",
                each.question,
                f"{each.subject} waits for {'an answer' if each.answer_schema else 'a yes or a no'}",
                "answer it" if each.answer_schema else "look at it, then approve or refuse",
                f"ratchet approval show {each.id}",
                "/" if each.run_id is None else f"/runs/{each.run_id}",
                at=each.created_at,
                run_id=each.run_id,
                # One that asks for more than yes or no is answered on the page of its run.
                approval_id=None if each.answer_schema else each.id,
            )


def _blocked(run: Run) -> Need:
    return _run(run, "fix the cause, then resume it", f"ratchet {_noun(run)} resume {run.id}")


def _paused(run: Run) -> Need:
    return _run(run, "resume it, or cancel it", f"ratchet {_noun(run)} resume {run.id}")


def _failed(api: Access, tx: Transaction) -> Iterator[Need]:
    """Those that failed lately: they cannot continue, but somebody may want to know why."""
    found = list_runs(tx, status=RunStatus.FAILED, limit=_FAILED)
    for run in visible_runs(api, tx, found):
        if (run.ended_at or 0) > tx.now - _FAILED_DAYS * _DAY_MS:
            yield _run(
                run, "see what happened, and start it again if it is wanted", f"ratchet runs show {run.id}"
            )


def _run(run: Run, next_: str, command: str) -> Need:
    return Need(
        str(run.status),
        f"{run.kind} {run.name}",
        run.reason or "no reason is recorded",
        next_,
        command,
        f"/runs/{run.id}",
        at=run.updated_at,
        run_id=run.id,
        simulated=run.simulated or run.used_recording,
    )


def _noun(run: Run) -> str:
    """The group of commands that knows this run best."""
    return {"protocol": "protocol", "research": "research"}.get(run.kind, "runs")


def _reviews(tx: Transaction, found: Sequence[Run]) -> Iterator[Need]:
    runs = {run.id: run for run in found}
    for step in steps_awaiting_review(tx, list(runs), limit=_MOST):
        run = runs[step.run_id]
        yield Need(
            "review",
            f"step {step.name} of {run.name}",
            step.reason or "it was carried out and is not judged yet",
            "wait for its judges, or judge it yourself",
            f"ratchet step show {step.id}",
            f"/runs/{run.id}",
            at=step.updated_at,
            run_id=run.id,
            simulated=run.simulated or run.used_recording,
        )


def _exhausted(api: Access, tx: Transaction, found: Sequence[Run]) -> Iterator[Need]:
    defaults = configured_budgets(api.runtime.settings)
    projects = [run.project_id for run in found if run.project_id is not None]
    for scope, numbers in (("run", [run.id for run in found]), ("project", projects)):
        for standing in budget_standings(tx, "run" if scope == "run" else "project", numbers, defaults):
            out = standing.exhausted
            if out is not None:
                measure, used, limit = out
                yield Need(
                    "budget",
                    f"{scope} {standing.scope_id} has used its {measure} up",
                    f"{used:g} of {limit:g}, policy {standing.policy}",
                    "raise the limit, or let it stand",
                    f"ratchet config show | grep budgets.{scope}",
                    f"/{scope}s/{standing.scope_id}",
                    run_id=standing.scope_id if scope == "run" else None,
                )


def _quarantined(tx: Transaction) -> Iterator[Need]:
    for each in quarantined_agents(tx, limit=_MOST):
        yield Need(
            "quarantined",
            f"agent {each.agent} {each.version}",
            each.reason or "it crashed again and again",
            "look at its log, then roll back or give feedback",
            f"ratchet agent rollback {each.agent}",
            f"/agents/{each.agent}",
        )


def _production(tx: Transaction) -> Iterator[Need]:
    for name, split in splits_that_ask(tx, limit=_MOST):
        yield Need(
            "traffic",
            f"agent {name}: its traffic was split, and nothing is clear",
            split.reason or "",
            "promote that version, or leave the current one",
            f"ratchet agent promote {name} {split.candidate[:12]}",
            f"/agents/{name}/production",
            at=split.ended_at,
        )
    for name, incident in open_drift(tx, limit=_MOST):
        yield Need(
            "drift",
            f"agent {name} does not answer an eval any more",
            incident.message[:500],
            "have it fixed, or roll back",
            f"ratchet agent propose {name} {incident.id}",
            f"/agents/{name}/production",
            at=incident.last_at,
        )


def _workers(api: Access, tx: Transaction) -> Iterator[Need]:
    for each in left_behind(tx, api.runtime.settings.runtime.dead_after_seconds):
        yield Need(
            "dead",
            f"worker {each.process.id}",
            f"it is silent, and {each.jobs} jobs are still assigned to it",
            "start a worker: it takes them over",
            "ratchet worker",
            "/queue",
            at=each.process.beat_at,
        )
    waiting = sum(counts.get(str(JobStatus.QUEUED), 0) for counts in count_jobs(tx).values())
    if waiting and not anybody_works(tx):
        yield Need("dead", f"{waiting} jobs wait", "no worker runs", "start one", "ratchet worker", "/queue")
