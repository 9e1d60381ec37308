"""A specialist's prompt and every view of a research run at three lengths of it."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.result import Goal, Result
from benchmarks.sample import ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage
from benchmarks.trial_history import fill_trials
from ratchet.ledger import Ledger, Transaction
from ratchet.research.views import (
    calibration,
    cost,
    draw_live,
    knowledge,
    leaderboard,
    lineage_view,
    live_text,
    near_misses,
    read_live,
    recent_activity,
    report,
    status,
    tree,
    yields,
)
from ratchet.runtime import open_ledger

_GOAL = 1.2
# Half a millisecond more is noise or a level of the index, and no view that grows.
_SLACK_MS = 0.5
_REPORT = "report, HTML"

View = Callable[[Transaction, int], object]


class Run(NamedTuple):
    ledger: Ledger
    run_id: int


VIEWS: dict[str, View] = {
    "prompt": lambda tx, run: lineage_view(tx, run, "s3"),
    "status, JSON": status,
    "leaderboard": lambda tx, run: leaderboard(tx, run).to_markdown(),
    "tree of the best": lambda tx, run: tree(tx, run, sideways=3).to_markdown(),
    "knowledge page": lambda tx, run: knowledge(tx, run).to_markdown(),
    "recent activity": lambda tx, run: recent_activity(tx, run).to_markdown(),
    "near misses": lambda tx, run: near_misses(tx, run).to_markdown(),
    "specialists": lambda tx, run: yields(tx, run).to_markdown(),
    "cost": lambda tx, run: cost(tx, run).to_markdown(),
    "calibration": lambda tx, run: calibration(tx, run).to_markdown(),
    "live picture": lambda tx, run: draw_live(read_live(tx, run)),
    "live, plain": lambda tx, run: live_text(read_live(tx, run)),
    _REPORT: lambda tx, run: report(tx, run),
}


def measure(stage: Stage, scale: Scale) -> Result:
    lengths = scale.trials
    result = Result(
        "research_views",
        "a prompt and every view of a research run, by its number of trials",
        ["ms", *(f"{SHOWN[each]}, {size}" for each in DATABASES for size in (*_shown(lengths), "ratio"))],
    )
    runs: dict[tuple[str, int], Run] = {}
    for database in DATABASES:
        for length in lengths:
            ledger = open_ledger(stage.new_home(database))
            runs[database, length] = Run(ledger, fill_trials(ledger, length))
    taken = _draw_all(runs, max(10, scale.reads // 4))
    grown: dict[str, list[str]] = defaultdict(list)
    for name in VIEWS:
        row = [name]
        for database in DATABASES:
            times = [min(taken[name, database, length]) for length in lengths]
            # The report's plot is not full in the short run.
            low, high = times[1 if name == _REPORT else 0], times[-1]
            row += [*(f"{each:.2f}" for each in times), ratio(high, low)]
            if high > _GOAL * low and high - low > _SLACK_MS:
                grown[database].append(f"{name} ({ratio(high, low)})")
        result.rows.append(row)
    for database in DATABASES:
        goal = f"{SHOWN[database]}: every view within {_GOAL}× (or {_SLACK_MS} ms)"
        result.goals.append(Goal(goal, ", ".join(grown[database]) or "all", not grown[database]))
    result.notes.append("the fastest of several tries: what is added to it is the machine's, not the view's")
    result.notes.append(
        "ratio of the longest run to the shortest; of the report to the middle one, since it plots up to 2,000 trials"
    )
    result.numbers = {
        f"{name}, {database}, {length}": each for (name, database, length), each in taken.items()
    }
    for run in runs.values():
        run.ledger.close()
    return result


def _shown(lengths: tuple[int, ...]) -> list[str]:
    return [f"{length:,}" for length in lengths]


def _draw_all(runs: dict[tuple[str, int], Run], reads: int) -> dict[tuple[str, str, int], list[float]]:
    """Milliseconds of each view of each run, taken in turn."""
    taken: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for number in range(reads + 2):
        for name, view in VIEWS.items():
            # Whoever comes first finds cold caches, so the order is another one each time.
            for (database, length), run in random.sample(list(runs.items()), len(runs)):
                began = time.perf_counter()
                with run.ledger.read() as tx:
                    view(tx, run.run_id)
                if number >= 2:  # the first compile statements and warm caches
                    taken[name, database, length].append((time.perf_counter() - began) * 1000)
    return taken
