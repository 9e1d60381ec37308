"""The main pages of the console with a short and a long history: nobody should wait for the long one."""

from __future__ import annotations

import http.client
import random
from collections import defaultdict
from typing import NamedTuple

from benchmarks.history import fill_protocols
from benchmarks.measures.api import TOKEN, get
from benchmarks.measures.idle import serve
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, cpu_seconds, percentile
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage
from benchmarks.trial_history import fill_trials
from ratchet.runtime import open_ledger

_EVENTS = (1_000, 100_000)
_RUNS = (100, 10_000)
_TRIALS = (100, 10_000)
_GOAL_MS = 200
PAGES = {
    "home": "/",
    "runs": "/runs",
    "events": "/events",
    "events of type step.*": "/events?type=step.*",
    "projects": "/projects",
    "protocols": "/protocols",
    "a protocol": "/protocols/50",
    "research": "/research",
    "a research run": "/research/{run}",
    "its trials": "/research/{run}/trials",
    "a trial of it": "/research/{run}/trials/40",
    "its lineage": "/research/{run}/lineage",
    "its lineage, 5,000 trials as data": "/research/{run}/lineage/data",
    "compared with itself": "/research/compare?run={run}",
    "queue": "/queue",
    "usage": "/usage",
}


class Site(NamedTuple):
    """A server, a connection to it, and the number of the research run that it has."""

    pid: int
    connection: http.client.HTTPConnection
    run: int

    def open(self, page: str) -> float:
        """How many milliseconds a page took."""
        return get(self.connection, f"/console{PAGES[page].format(run=self.run)}")

    def cpu_ms(self, page: str, times: int) -> float:
        """What the server worked for a page."""
        before = cpu_seconds(self.pid)
        for _ in range(times):
            self.open(page)
        return (cpu_seconds(self.pid) - before) * 1000 / times


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "console",
        f"pages, one at a time, with {_EVENTS[0]:,} and {_EVENTS[1]:,} events, {_RUNS[0]:,} and {_RUNS[1]:,} "
        f"protocols, {_TRIALS[0]:,} and {_TRIALS[1]:,} trials",
        ["ms", *(f"{SHOWN[each]}, {what}" for each in DATABASES for what in ("short", "long", "p95", "CPU"))],
    )
    taken: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    worked: dict[tuple[str, str], float] = {}
    for database in DATABASES:
        sites = {
            size: _site(stage, database, *lengths)
            for size, lengths in zip(
                ("short", "long"), zip(_EVENTS, _RUNS, _TRIALS, strict=True), strict=True
            )
        }
        for number in range(scale.reads + 2):
            for page in PAGES:
                for size, site in random.sample(list(sites.items()), 2):
                    milliseconds = site.open(page)
                    if number >= 2:  # the first compile statements and templates, and warm caches
                        taken[page, database, size].append(milliseconds)
        worked |= {(page, database): sites["long"].cpu_ms(page, max(20, scale.reads // 4)) for page in PAGES}
        for site in sites.values():
            site.connection.close()
    slow: dict[str, list[str]] = defaultdict(list)
    for page in PAGES:
        row = [page]
        for database in DATABASES:
            low, high = (taken[page, database, size] for size in ("short", "long"))
            worst = percentile(high, 0.95)
            row += [f"{each:.0f}" for each in (Spread.of(low).median, Spread.of(high).median, worst)]
            row.append(f"{worked[page, database]:.0f}")
            if worst >= _GOAL_MS:
                slow[database].append(f"{page} ({worst:.0f} ms)")
        result.rows.append(row)
    for database in DATABASES:
        goal = f"{SHOWN[database]}: every page of the long history under {_GOAL_MS} ms, p95"
        result.goals.append(Goal(goal, ", ".join(slow[database]) or "all", not slow[database]))
    result.notes.append(
        "p95 and CPU are those of the long history; CPU is counted in ticks of 10 ms over many requests"
    )
    result.notes.append("a long run plots 400 trials and what was kept; a short one has fewer")
    result.numbers = {", ".join(key): values for key, values in taken.items()}
    return result


def _site(stage: Stage, database: str, events: int, runs: int, trials: int) -> Site:
    """A server on a ledger with that history."""
    home = stage.new_home(database)
    with open_ledger(home) as ledger:
        fill_protocols(ledger, events=events, runs=runs)
        run = fill_trials(ledger, trials)
    child, port = serve(stage, home, {"RATCHET_SERVER__TOKEN": TOKEN})
    return Site(child.pid, http.client.HTTPConnection("127.0.0.1", port, timeout=60), run)
