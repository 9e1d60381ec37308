"""The HTTP API with a short and a long history of protocols: the long one should cost what the short one does."""

from __future__ import annotations

import http.client
import random
import time
from collections import defaultdict

from benchmarks.history import fill_protocols
from benchmarks.measures.idle import serve
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage
from ratchet.runtime import open_ledger

_RUNS = (100, 10_000)
_GOAL = 1.5
# A millisecond more is the noise of a process that also does other things.
_SLACK_MS = 1.0
TOKEN = "bench"
PATHS = (
    "/protocols/50",
    "/protocols/50/steps",
    "/protocols/50/events?limit=5",
    "/projects/1/protocols",
    "/events?limit=50",
    "/runs?kind=protocol",
    "/queues",
)


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "api",
        f"GET requests, one at a time, with {scale.events[0]:,} and {scale.events[1]:,} events, "
        f"{_RUNS[0]:,} and {_RUNS[1]:,} protocols",
        [
            "path",
            *(f"{SHOWN[each]}, {what}" for each in DATABASES for what in ("req/s", "p99 ms", "to short")),
        ],
    )
    taken: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for database in DATABASES:
        connections = {
            size: _serving(stage, database, events, runs)
            for size, events, runs in zip(("short", "long"), scale.events, _RUNS, strict=True)
        }
        for number in range(scale.reads + 2):
            for path in PATHS:
                for size, connection in random.sample(list(connections.items()), 2):
                    milliseconds = get(connection, path)
                    if number >= 2:
                        taken[path, database, size].append(milliseconds)
        for connection in connections.values():
            connection.close()
    grown: dict[str, list[str]] = defaultdict(list)
    for path in PATHS:
        row = [path]
        for database in DATABASES:
            low, high = (taken[path, database, size] for size in ("short", "long"))
            before, after = Spread.of(low).median, Spread.of(high).median
            row += [f"{1000 / after:.0f}", f"{percentile(high, 0.99):.1f}", ratio(after, before)]
            if after > _GOAL * before and after - before > _SLACK_MS:
                grown[database].append(f"{path} ({ratio(after, before)})")
        result.rows.append(row)
    for database in DATABASES:
        goal = f"{SHOWN[database]}: every request within {_GOAL}× of the short history (or {_SLACK_MS} ms)"
        result.goals.append(Goal(goal, ", ".join(grown[database]) or "all", not grown[database]))
    result.numbers = {", ".join(key): values for key, values in taken.items()}
    return result


def _serving(stage: Stage, database: str, events: int, runs: int) -> http.client.HTTPConnection:
    """A server on a ledger with that history, and a connection to it."""
    home = stage.new_home(database)
    with open_ledger(home) as ledger:
        fill_protocols(ledger, events=events, runs=runs)
    port = serve(stage, home, {"RATCHET_SERVER__TOKEN": TOKEN})[1]
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def get(connection: http.client.HTTPConnection, path: str) -> float:
    """How many milliseconds an answer took, read to its end."""
    began = time.perf_counter()
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path} was answered with {answer.status}")
    return (time.perf_counter() - began) * 1000
