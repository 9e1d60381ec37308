"""Cost does not grow with history: each list and view does the same work on ten times as much of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.kernel import RunStatus, Usage
from ratchet.ledger import Budgets, EventFilter, Ledger, Spender, Transaction, attention
from ratchet.ledger import artifacts as store
from ratchet.ledger import events as log
from ratchet.ledger import projects as owners
from ratchet.ledger import runs as work
from ratchet.ledger import usage as spending
from ratchet.ledger.attention import spent, today
from ratchet.ledger.ledger import read_log
from ratchet.ledger.tables import (
    artifacts,
    attempts,
    events,
    jobs,
    processes,
    projects,
    runs,
    sessions,
    steps,
    usage,
    usage_days,
)
from ratchet.ledger.usage import list_sessions
from ratchet.runtime import job as queue
from ratchet.runtime.claim import QueueRule
from ratchet.runtime.job import JobStatus, RetryPolicy
from ratchet.runtime.jobs import Jobs
from ratchet.runtime.runtime import Kinds
from tests.ledger.effort import analyze, effort, plan_of, statements_of

SMALL, LARGE = 400, 4000
# What the last rows of history, and nothing else, are about.
RARE = "budget.exceeded"
SHARED = "0" * 64
ZERO = asdict(Usage())


RULES = {"default": QueueRule("default"), "rare": QueueRule("rare", 100, 100, 1.0)}
JOBS = Jobs(RULES, Kinds(), RetryPolicy())

VIEWS: dict[str, Callable[[Transaction], object]] = {
    "first events": lambda tx: log.since(tx.connection, limit=20),
    "events after": lambda tx: log.since(tx.connection, SMALL // 2, limit=20),
    "newest events": lambda tx: log.latest(tx.connection, limit=20),
    "older events": lambda tx: log.latest(tx.connection, before=SMALL // 2, limit=20),
    "last event": lambda tx: log.last_id(tx.connection),
    "newest of a project": lambda tx: log.latest(tx.connection, where=EventFilter(project_id=1), limit=20),
    "newest of a run": lambda tx: log.latest(tx.connection, where=EventFilter(run_id=1), limit=20),
    "newest of a step": lambda tx: log.latest(tx.connection, where=EventFilter(step_id=1), limit=20),
    "newest of a job": lambda tx: log.latest(tx.connection, where=EventFilter(job_id=1), limit=20),
    "a common type": lambda tx: log.latest(tx.connection, where=EventFilter(type="run.running"), limit=20),
    "a rare type": lambda tx: log.latest(tx.connection, where=EventFilter(type=RARE), limit=20),
    "a type not there": lambda tx: log.latest(tx.connection, where=EventFilter(type="none"), limit=20),
    "a common family": lambda tx: log.latest(tx.connection, where=EventFilter(type="run.*"), limit=20),
    "a rare family": lambda tx: log.since(tx.connection, where=EventFilter(type="budget.*"), limit=20),
    "a family not there": lambda tx: log.latest(tx.connection, where=EventFilter(type="none.*"), limit=20),
    "a type of a run": lambda tx: log.latest(
        tx.connection, where=EventFilter(run_id=1, type="run.running"), limit=20
    ),
    "a family of a run": lambda tx: log.latest(
        tx.connection, where=EventFilter(run_id=1, type="run.*"), limit=20
    ),
    "a run": lambda tx: work.get_run(tx, 1),
    "newest runs": lambda tx: work.list_runs(tx, limit=20),
    "older runs": lambda tx: work.list_runs(tx, before=SMALL // 2, limit=20),
    "runs of a common kind": lambda tx: work.list_runs(tx, kind="demo", limit=20),
    "runs of a rare kind": lambda tx: work.list_runs(tx, kind="rare", limit=20),
    "runs of a name": lambda tx: work.list_runs(tx, name="run 1", limit=20),
    "runs of a common status": lambda tx: work.list_runs(tx, status=RunStatus.COMPLETED, limit=20),
    "runs of a rare status": lambda tx: work.list_runs(tx, status=RunStatus.RUNNING, limit=20),
    "runs of a project": lambda tx: work.list_runs(tx, project_id=1, limit=20),
    "open runs counted": lambda tx: work.count_open_runs(tx),
    "a step": lambda tx: work.get_step(tx, 1),
    "steps of a run": lambda tx: work.list_steps(tx, 1),
    "newest steps of a run": lambda tx: work.latest_steps(tx, 1, limit=20),
    "an attempt": lambda tx: work.get_attempt(tx, 1),
    "attempts at a step": lambda tx: work.list_attempts(tx, 1),
    "newest attempts at a step": lambda tx: work.latest_attempts(tx, 1, limit=20),
    "artifacts of an attempt": lambda tx: store.of_attempt(tx, 1),
    "artifacts of a run": lambda tx: store.of_run(tx, 1),
    "newest artifacts of a run": lambda tx: store.latest(tx, run_id=1, limit=20),
    "newest artifacts of an attempt": lambda tx: store.latest(tx, attempt_id=1, limit=20),
    "an artifact that many have": lambda tx: owners.artifact_behind(tx, SHARED, [SHARED]),
    "an artifact that many have, of a project": lambda tx: owners.artifact_of_project(tx, SHARED, 1),
    "the owner of an attempt": lambda tx: owners.owner_of(tx, "attempt", 1),
    "the log of an attempt": lambda tx: read_log(tx, 1, max_bytes=4096),
    "a total": lambda tx: spending.total(tx, "run", 1),
    "a budget": lambda tx: spending.check(tx, Spender(1, 1, 1), Budgets()),
    "a charge": lambda tx: spending.charge(tx, Spender(1, 1, 1), Usage(1), Budgets(), engine="t"),
    "used lately": lambda tx: [spent(tx, by, since=today(tx)) for by in ("day", "engine", "run", "project")],
    "newest sessions": lambda tx: list_sessions(tx, limit=20),
    "sessions of a run": lambda tx: list_sessions(tx, run_id=1, limit=20),
    "sessions of a common engine": lambda tx: list_sessions(tx, engine="t", limit=20),
    "sessions of a rare engine": lambda tx: list_sessions(tx, engine="rare", limit=20),
    "failed sessions": lambda tx: list_sessions(tx, failed=True, limit=20),
    "runs that continue": lambda tx: attention.open_runs(tx, RunStatus.RUNNING, RunStatus.BLOCKED, limit=20),
    "steps that wait": lambda tx: attention.steps_awaiting_review(tx, [1, 2, 3], limit=20),
    "how far runs are": lambda tx: attention.count_steps(tx, [1, 2, 3]),
    "a job": lambda tx: queue.get_job(tx, 1),
    "newest jobs": lambda tx: queue.list_jobs(tx, limit=20),
    "older jobs": lambda tx: queue.list_jobs(tx, before=SMALL // 2, limit=20),
    "jobs of a common status": lambda tx: queue.list_jobs(tx, status=JobStatus.FINISHED, limit=20),
    "jobs of a rare status": lambda tx: queue.list_jobs(tx, status=JobStatus.WAITING, limit=20),
    "jobs of a queue": lambda tx: queue.list_jobs(tx, queue="default", limit=20),
    "jobs of a rare queue": lambda tx: queue.list_jobs(tx, queue="rare", limit=20),
    "jobs of a queue and a status": lambda tx: queue.list_jobs(
        tx, queue="default", status=JobStatus.FINISHED, limit=20
    ),
    "jobs of a run": lambda tx: queue.list_jobs(tx, run_id=1, limit=20),
    "jobs counted": queue.count_jobs,
    "processes at work": queue.started_on,
    "stops wanted": lambda tx: queue.stops_wanted(tx, "p"),
    "jobs claimed": lambda tx: JOBS.claim(tx, "p", 2),
    "a look for jobs": lambda tx: JOBS.look(tx, "p", 2),
    "a job finished": lambda tx: JOBS.finish(tx, job(tx, "started"), {}),
    "jobs taken over": lambda tx: JOBS.take_over(tx, "p"),
    "jobs that wait for a free key": JOBS.free_stranded,
}


class Undo(Exception):
    pass


def job(tx: Transaction, status: str) -> Any:
    return queue.get_job(
        tx, tx.connection.execute(sa.select(sa.func.min(jobs.c.id)).where(jobs.c.status == status)).scalar()
    )


def grow(ledger: Ledger, first: int, last: int) -> None:
    """History from row `first` up to `last`: all of it finished, and of the most common kind."""
    numbers = range(first, last)
    with ledger.write() as tx:
        add = tx.connection.execute
        times = {"created_at": 1, "updated_at": 1}
        add(
            sa.insert(runs),
            [
                {
                    "kind": "demo",
                    "name": f"run {number}",
                    "project_id": 1,
                    "status": "completed",
                    "spec": {},
                    "simulated": False,
                    "used_recording": False,
                    **times,
                }
                for number in numbers
            ],
        )
        one = {"run_id": 1} if first == 0 else {}
        ids = [{"run_id": number + 1, **one} if number < 30 else {"run_id": number + 1} for number in numbers]
        add(
            sa.insert(steps),
            [
                {**at, "position": 0, "name": f"s{number}", "status": "completed", "spec": {}, **times}
                for number, at in zip(numbers, ids, strict=True)
            ],
        )
        add(
            sa.insert(attempts),
            [
                {**at, "step_id": number + 1, "number": 1, "simulated": False, "started_at": 1, "ended_at": 2}
                for number, at in zip(numbers, ids, strict=True)
            ],
        )
        add(
            sa.insert(artifacts),
            [
                {
                    "sha256": SHARED,
                    "size": 1,
                    "name": "a",
                    "media_type": "t",
                    "pinned": False,
                    "created_at": 1,
                    "attempt_id": number + 1,
                    **at,
                }
                for number, at in zip(numbers, ids, strict=True)
            ],
        )
        add(sa.insert(usage), [{"at": 1, "engine": "t", **at, **ZERO} for at in ids])
        of_days = [{"day": number, "run_id": 1, "engine": "t", "model": "", **ZERO} for number in numbers]
        add(sa.insert(usage_days), of_days)
        session = {"role": "author", "engine": "t", "failure": None, "simulated": False, "at": 1}
        add(sa.insert(sessions), [{**session, **at, **ZERO} for at in ids])
        add(
            sa.insert(events),
            [
                {
                    "at": 1,
                    "type": ("run.running", "run.completed", "step.completed")[number % 3],
                    "actor": "t",
                    "project_id": 1,
                    "step_id": number + 1,
                    "job_id": number + 1,
                    **at,
                }
                for number, at in zip(numbers, ids, strict=True)
            ],
        )
        add(sa.insert(jobs), [{**a_job("finished"), "ended_at": 1, **at} for at in ids])


def a_job(status: str, queue_: str = "default") -> dict[str, Any]:
    return {
        "kind": "demo",
        "queue": queue_,
        "key": "k" if status == "waiting" else None,
        "priority": 5,
        "payload": {},
        "status": status,
        "process_id": "p" if status == "started" else None,
        "attempt": 1,
        "max_attempts": 3,
        "delivery": 1,
        "recoveries": 0,
        "created_at": 1,
        "due_at": 1,
    }


def begin(ledger: Ledger) -> None:
    """What is old and rare, or still open: the same however long the history gets."""
    with ledger.write() as tx:
        add = tx.connection.execute
        add(sa.insert(projects).values(name="work", created_at=1))
        for _ in range(3):
            add(sa.insert(events).values(at=1, type=RARE, actor="t"))
        failed = {"role": "author", "engine": "rare", "failure": "timeout", "simulated": False, "at": 1}
        for _ in range(3):
            add(sa.insert(sessions).values(**failed, **ZERO))
        for status in ("queued", "scheduled", "waiting", "started"):
            add(sa.insert(jobs), [a_job(status, "rare") for _ in range(3)])
        process = dict.fromkeys(("role", "host", "identity", "version"), "")
        zeros = dict.fromkeys(("pid", "slots", "busy", "beat", "started_at", "beat_at"), 0)
        add(sa.insert(processes).values(id="p", state="alive", **process, **zeros))


def open_a_few(ledger: Ledger) -> None:
    with ledger.write() as tx:
        few = runs.c.id.in_([1, 2, 3])
        tx.connection.execute(sa.update(runs).where(few).values(status="running", kind="rare"))


def work_of(ledger: Ledger) -> dict[str, int]:
    """How much work each view is."""
    found = {}
    for name, view in VIEWS.items():
        with contextlib.suppress(Undo), ledger.write() as tx:
            found[name] = effort(tx, view)
            raise Undo
    return found


@pytest.mark.soak
def test_every_view_does_the_same_work_on_ten_times_the_history(ledger: Ledger) -> None:
    begin(ledger)
    grow(ledger, 0, SMALL)
    open_a_few(ledger)
    analyze(ledger)
    small = work_of(ledger)
    grow(ledger, SMALL, LARGE)
    analyze(ledger)
    large = work_of(ledger)
    grown = {name: (small[name], large[name]) for name in VIEWS if large[name] > 1.5 * small[name] + 100}
    assert grown == {}


def test_no_view_reads_a_whole_table_or_sorts_a_history(ledger: Ledger) -> None:
    begin(ledger)
    grow(ledger, 0, 50)
    open_a_few(ledger)
    wrong = {}
    for name, view in VIEWS.items():
        with contextlib.suppress(Undo), ledger.write() as tx:
            with statements_of(tx.connection) as statements:
                view(tx)
            plans = [plan_of(tx, *each) for each in statements]
            found = [plan for plan in plans if any(bad_step(line) for line in plan)]
            if found:
                wrong[name] = found
            raise Undo
    assert wrong == {}


HISTORY = {"events", "runs", "steps", "attempts", "artifacts", "usage", "jobs"}


def bad_step(line: str) -> bool:
    """A scan of a table of history in no order. (SQLite's bare SCAN goes by number and is ended by the limit.)"""
    if re.search(r"Seq Scan on (\w+)", line):
        return any(re.search(rf"Seq Scan on {table}\b", line) for table in HISTORY)
    return "AUTOMATIC" in line


def test_claiming_costs_the_same_however_many_jobs_wait(ledger: Ledger) -> None:
    def claimed() -> int:
        analyze(ledger)
        found = 0
        with contextlib.suppress(Undo), ledger.write() as tx:
            found = effort(tx, lambda tx: JOBS.look(tx, "p", 5))
            raise Undo
        return found

    begin(ledger)
    with ledger.write() as tx:
        tx.connection.execute(sa.insert(jobs), [{**a_job("queued"), "key": f"k{n}"} for n in range(50)])
    few = claimed()
    with ledger.write() as tx:
        tx.connection.execute(sa.insert(jobs), [{**a_job("queued"), "key": f"m{n}"} for n in range(2000)])
        tx.connection.execute(sa.insert(jobs), [{**a_job("scheduled"), "due_at": 2**50} for _ in range(2000)])
    assert claimed() <= 1.5 * few + 100
