"""A toolbox with few and with many tools: finding one by its task or its id, and opening it with nothing changed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage
from ratchet.config import Settings
from ratchet.ledger import Ledger
from ratchet.tools.definition import ToolType
from ratchet.tools.registry import Toolbox, open_toolbox

_GOAL_MS = 10.0
_FEW, _MANY = 100, 10_000
_VERBS = (
    "clean",
    "split",
    "merge",
    "translate",
    "render",
    "compress",
    "validate",
    "price",
    "sort",
    "classify",
)
_THINGS = (
    "invoices",
    "images",
    "articles",
    "rows",
    "letters",
    "recordings",
    "addresses",
    "orders",
    "reports",
)
_WAYS = (
    "by date",
    "by size",
    "for customers",
    "in German",
    "without duplicates",
    "as JSON",
    "at night",
    "in bulk",
)

USES: dict[str, Callable[[Filled], object]] = {
    "search by task": lambda filled: filled.toolbox.search("put the bills of our clients in order"),
    "search by task, of a type": lambda filled: filled.toolbox.search(
        "make photos smaller", type=ToolType.PYTHON
    ),
    "search by task, with a tag": lambda filled: filled.toolbox.search("make photos smaller", tags=["area1"]),
    "get by id": lambda filled: filled.toolbox.get("tool_7"),
    "open, nothing changed": lambda filled: filled.open().close(),
}
# Looking whether a file has changed takes time for each file.
_FOR_EACH = frozenset({"open, nothing changed"})


@dataclass(frozen=True)
class Filled:
    """A home with so many definitions, and how long it took to read them all for the first time."""

    home: Path
    ledger: Ledger
    seconds: float
    toolbox: Toolbox

    def open(self) -> Toolbox:
        return open_toolbox(self.ledger, Settings(database_url=self.ledger.url), self.home)


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "tools",
        f"a toolbox with {_FEW:,} and {_MANY:,} tools, {scale.reads} times each",
        ["ms", f"{_FEW:,}", f"{_MANY:,}", "ratio", f"p95 of {_MANY:,}"],
    )
    with contextlib.ExitStack() as stack:
        few, many = (_fill(stage.new_directory("tools"), count, stack) for count in (_FEW, _MANY))
        began = time.perf_counter()
        many.toolbox.search("warm")
        result.notes.append(
            f"{_MANY:,} new files take {many.seconds:.1f} s to read and record,"
            f" and {time.perf_counter() - began:.1f} s to learn by heart at the first search"
        )
        few.toolbox.search("warm")
        taken = _use_all({"few": few, "many": many}, scale.reads)
    for name in USES:
        low, high = taken[name, "few"], taken[name, "many"]
        middle = Spread.of(high).median
        result.rows.append(
            [
                name,
                f"{Spread.of(low).median:.2f}",
                f"{middle:.2f}",
                ratio(middle, Spread.of(low).median),
                f"{percentile(high, 0.95):.2f}",
            ]
        )
        if name not in _FOR_EACH:
            goal = f"{name}: < {_GOAL_MS:g} ms at {_MANY:,}"
            result.goals.append(Goal(goal, f"{middle:.2f}", middle < _GOAL_MS))
    result.numbers = {", ".join(key): values for key, values in taken.items()}
    return result


def _fill(home: Path, count: int, stack: contextlib.ExitStack) -> Filled:
    chance = random.Random(count)
    for number in range(count):
        # As many to a folder as a person could bear.
        folder = home / "tools" / f"area{number // 200}"
        folder.mkdir(parents=True, exist_ok=True)
        task = f"{chance.choice(_VERBS)} {chance.choice(_THINGS)} {chance.choice(_WAYS)}"
        (folder / f"tool_{number}.yaml").write_text(
            f"type: python\ndescription: {task} of branch {number}\ntags: [area{number % 20}]\n"
            f"speed_tier: fast\ncost_tier: free\npython: {{source: 'def run(): return {number}'}}\n"
        )
    ledger = stack.enter_context(Ledger.open(f"sqlite:///{home}/ledger.db", home / "artifacts"))
    began = time.perf_counter()
    toolbox = open_toolbox(ledger, Settings(database_url=ledger.url), home)
    taken = time.perf_counter() - began
    stack.callback(toolbox.close)
    return Filled(home, ledger, taken, toolbox)


def _use_all(homes: dict[str, Filled], times: int) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each use of each toolbox, taken in turn."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(times + 2):
        for name, use in USES.items():
            for size, filled in homes.items():
                began = time.perf_counter()
                use(filled)
                if number >= 2:  # the first warm the caches
                    taken[name, size].append((time.perf_counter() - began) * 1000)
    return taken
