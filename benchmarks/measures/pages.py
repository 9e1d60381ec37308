"""Lists and pages at two lengths of history: the long one should cost what the short one does."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable

from benchmarks.history import fill
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage
from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter, Ledger, Transaction, events
from ratchet.ledger.runs import list_runs
from ratchet.runtime import JobStatus, count_jobs, list_jobs, open_ledger

_GOAL = 1.5
# Half a millisecond more is noise or a level of the index, and no page that grows.
_SLACK_MS = 0.5

Page = Callable[[Transaction, int], object]

PAGES: dict[str, Page] = {
    "events, latest": lambda tx, _: events.latest(tx.connection),
    "events, a page in the middle": lambda tx, last: events.latest(tx.connection, before=last // 2),
    "events of a run": lambda tx, _: events.latest(tx.connection, where=EventFilter(run_id=5)),
    "events of a step": lambda tx, _: events.latest(tx.connection, where=EventFilter(step_id=50)),
    "events of type step.*, frequent": lambda tx, _: events.latest(
        tx.connection, where=EventFilter(type="step.*")
    ),
    "events of type project.*, seldom": lambda tx, _: events.latest(
        tx.connection, where=EventFilter(type="project.*")
    ),
    "events of type step.running": lambda tx, _: events.latest(
        tx.connection, where=EventFilter(type="step.running")
    ),
    "events of a run and type step.*": lambda tx, _: events.latest(
        tx.connection, where=EventFilter(run_id=5, type="step.*"), limit=40
    ),
    "events since 500 ago": lambda tx, last: events.since(tx.connection, last - 500),
    "events since now": lambda tx, last: events.since(tx.connection, last),
    "events since now, of a run": lambda tx, last: events.since(
        tx.connection, last, where=EventFilter(run_id=5)
    ),
    "events since now, step.*": lambda tx, last: events.since(
        tx.connection, last, where=EventFilter(type="step.*")
    ),
    "runs, latest": lambda tx, _: list_runs(tx),
    "runs by status, running": lambda tx, _: list_runs(tx, status=RunStatus.RUNNING, limit=1),
    "runs by kind": lambda tx, _: list_runs(tx, kind="research"),
    "runs by kind and status": lambda tx, _: list_runs(tx, kind="research", status=RunStatus.COMPLETED),
    "runs by kind and status, none": lambda tx, _: list_runs(tx, kind="research", status=RunStatus.FAILED),
    "jobs, latest": lambda tx, _: list_jobs(tx),
    "jobs of a queue by status": lambda tx, _: list_jobs(tx, queue="default", status=JobStatus.QUEUED),
    "jobs of a run": lambda tx, _: list_jobs(tx, run_id=500),
    "count_jobs": lambda tx, _: count_jobs(tx),
}


def measure(stage: Stage, scale: Scale) -> Result:
    short, long = scale.events
    few, many = scale.rows
    result = Result(
        "pages",
        f"reads with {short:,} and {long:,} events, {few:,} and {many:,} runs and jobs",
        [
            "ms",
            *(f"{SHOWN[database]}, {size}" for database in DATABASES for size in ("short", "long", "ratio")),
        ],
    )
    ledgers: dict[tuple[str, str], Ledger] = {}
    for database in DATABASES:
        for size, count, rows in (("short", short, few), ("long", long, many)):
            ledger = ledgers[database, size] = open_ledger(stage.new_home(database))
            began = time.monotonic()
            fill(ledger, events=count, rows=rows)
            if size == "long":
                seconds = time.monotonic() - began
                result.notes.append(f"{SHOWN[database]}: the long history was made in {seconds:.0f} s")
    taken = _read_all(ledgers, {"short": short, "long": long}, scale.reads)
    grown: dict[str, list[str]] = defaultdict(list)
    for name in PAGES:
        row = [name]
        for database in DATABASES:
            low, high = (Spread.of(taken[name, database, size]).median for size in ("short", "long"))
            row += [f"{low:.2f}", f"{high:.2f}", ratio(high, low)]
            if high > _GOAL * low and high - low > _SLACK_MS:
                grown[database].append(f"{name} ({ratio(high, low)})")
        result.rows.append(row)
    for database in DATABASES:
        goal = f"{SHOWN[database]}: every page within {_GOAL}× (or {_SLACK_MS} ms)"
        result.goals.append(Goal(goal, ", ".join(grown[database]) or "all", not grown[database]))
    result.numbers = {", ".join(key): values for key, values in taken.items()}
    for ledger in ledgers.values():
        ledger.close()
    return result


def _read_all(
    ledgers: dict[tuple[str, str], Ledger], lengths: dict[str, int], reads: int
) -> dict[tuple[str, str, str], list[float]]:
    """Milliseconds of each page on each ledger, taken in turn."""
    taken: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for number in range(reads + 2):
        for name, page in PAGES.items():
            # Whoever comes first finds cold caches, so the order is another one each time.
            for (database, size), ledger in random.sample(list(ledgers.items()), len(ledgers)):
                began = time.perf_counter()
                with ledger.read() as tx:
                    page(tx, lengths[size])
                if number >= 2:  # the first compile statements and warm caches
                    taken[name, database, size].append((time.perf_counter() - began) * 1000)
    return taken
