"""Events appended per second, next to bare commits on the same disk."""

from __future__ import annotations

import time
from collections import defaultdict

from benchmarks.barecommit import bare_commit
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage
from ratchet.ledger import Ledger
from ratchet.runtime import open_ledger

_GOAL = 5_000
_BATCHES = (1, 100, 1000)
_DATA = {"from": "pending", "to": "running", "name": "a step with a name"}


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "events",
        "events appended, each batch in one transaction",
        ["", "in a batch", "events/s", "CPU ms/event", "commits/s", "commits, to bare"],
    )
    ledgers = {}
    for database in DATABASES:
        loaded = stage.new_home(database)
        url = loaded.settings.database_url.reveal()
        ledgers[database] = (open_ledger(loaded), bare_commit(url, loaded.home))
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    cpus: dict[tuple[str, int], list[float]] = defaultdict(list)
    bare_rates: dict[str, list[float]] = defaultdict(list)
    for database, (ledger, _) in ledgers.items():  # statements are compiled once
        _append(ledger, 1, 5)
        bare_rates[database] = []
    for _ in range(max(3, scale.repeats)):
        for database, (ledger, bare) in ledgers.items():
            seconds = sum(bare.seconds() for _ in range(scale.single_events))
            bare_rates[database].append(scale.single_events / seconds)
            for size in _BATCHES:
                times = scale.single_events if size == 1 else scale.batches
                rate, cpu = _append(ledger, size, times)
                rates[database, size].append(rate)
                cpus[database, size].append(cpu)
    for database in DATABASES:
        bare_rate = Spread.of(bare_rates[database])
        result.rows.append(
            [
                f"bare INSERT and commit, {SHOWN[database]}",
                "1",
                bare_rate.show(),
                "–",
                bare_rate.show(),
                "1.00×",
            ]
        )
        for size in _BATCHES:
            rate = Spread.of(rates[database, size])
            commits = rate.median / size
            result.rows.append(
                [
                    f"Ratchet, {SHOWN[database]}",
                    f"{size}",
                    rate.show(),
                    Spread.of(cpus[database, size]).show(3),
                    f"{commits:,.0f}",
                    ratio(commits, bare_rate.median),
                ]
            )
        for size in (100, 1000):
            got = Spread.of(rates[database, size]).median
            goal = f"{SHOWN[database]}: at least {_GOAL:,} events/s in batches of {size}"
            result.goals.append(Goal(goal, f"{got:,.0f}", got >= _GOAL))
        ledgers[database][0].close()
    result.numbers = {
        "bare": dict(bare_rates),
        "events": {f"{database} {size}": values for (database, size), values in rates.items()},
    }
    return result


def _append(ledger: Ledger, size: int, times: int) -> tuple[float, float]:
    """Events per second, and CPU milliseconds per event."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        with ledger.write(actor="bench") as tx:
            for number in range(size):
                tx.event("bench.appended", run_id=number % 10 + 1, message="an event", data=_DATA)
    count = size * times
    return count / (time.perf_counter() - wall), (time.process_time() - cpu) / count * 1000
