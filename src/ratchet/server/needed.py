"""What waits for a person, over all flows: each with why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ratchet.kernel import RunStatus
from ratchet.ledger import Run, Transaction
from ratchet.ledger.approvals import ApprovalStatus, list_approvals
from ratchet.ledger.attention import open_runs, quarantined_agents, questions_of, steps_awaiting_review
from ratchet.ledger.owners import projects_of_runs
from ratchet.ledger.runs import list_runs
from ratchet.ledger.spending import budget_standings
from ratchet.runtime import JobStatus, anybody_works, configured_budgets, count_jobs
from ratchet.runtime.processes import left_behind
from ratchet.server.going_on import MOVING, STANDING, visible_runs
from ratchet.server.service import Access

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
                f"{each.subject} waits for a yes or a no",
                "look at it, then approve or refuse",
                f"ratchet approval show {each.id}",
                "/" if each.run_id is None else f"/runs/{each.run_id}",
                at=each.created_at,
                run_id=each.run_id,
                approval_id=each.id,
            )


def _blocked(run: Run) -> Need:
    return _run(run, "mend the cause, then resume it", f"ratchet {_noun(run)} resume {run.id}")


def _paused(run: Run) -> Need:
    return _run(run, "resume it, or cancel it", f"ratchet {_noun(run)} resume {run.id}")


def _failed(api: Access, tx: Transaction) -> Iterator[Need]:
    """Those that failed lately: they cannot go on, but somebody may want to know why."""
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


def _workers(api: Access, tx: Transaction) -> Iterator[Need]:
    for each in left_behind(tx, api.runtime.settings.runtime.dead_after_seconds):
        yield Need(
            "dead",
            f"worker {each.process.id}",
            f"it is silent, and {each.jobs} jobs lie on it",
            "start a worker: it takes them over",
            "ratchet worker",
            "/queue",
            at=each.process.beat_at,
        )
    waiting = sum(counts.get(str(JobStatus.QUEUED), 0) for counts in count_jobs(tx).values())
    if waiting and not anybody_works(tx):
        yield Need("dead", f"{waiting} jobs wait", "no worker runs", "start one", "ratchet worker", "/queue")
