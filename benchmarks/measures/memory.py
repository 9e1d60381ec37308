"""Searches of the memory with few and with many entries, and how soon one process finds what another stored."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage, die_with_parent
from ratchet.memory import Memory, WordLlama
from ratchet.memory.sqlite import SqliteMemory

_GOAL_MS = 10.0
_FEW, _MANY = 100, 10_000
_SUBJECTS = (
    "parser",
    "scheduler",
    "cache",
    "queue",
    "tokenizer",
    "renderer",
    "compiler",
    "ledger",
    "sandbox",
)
_VERBS = ("splits", "retries", "flushes", "merges", "rejects", "compresses", "validates", "replays")
_THINGS = ("rows", "requests", "images", "invoices", "tokens", "events", "files", "messages", "prices")

SEARCHES: dict[str, Callable[[Memory], object]] = {
    "by meaning": lambda memory: memory.find("the network reader drops pictures when busy"),
    "by meaning, of a kind": lambda memory: memory.find("bills were sent again", kind="tool"),
    "by meaning, of a kind with two tags": lambda memory: memory.find(
        "bills were sent again", kind="tool", tags=["area1", "level2"]
    ),
    "by meaning, of a scope": lambda memory: memory.find("bills were sent again", scope="project:3"),
    "by words, an identifier": lambda memory: memory.words("item_77"),
    "by words, a sentence": lambda memory: memory.words("the parser rejects invoices of item_42 twice"),
    "by words, one that all have": lambda memory: memory.words("the"),
    "by tag, 50 of them": lambda memory: memory.entries(tags=["area1"], limit=50),
}


@dataclass(frozen=True, slots=True)
class Filled:
    """A memory with entries, and how many milliseconds each took to store."""

    path: Path
    memory: SqliteMemory
    stored: list[float]


def measure(stage: Stage, scale: Scale) -> Result:
    few, many = (_fill(stage.new_directory("memory"), count) for count in (_FEW, _MANY))
    result = Result(
        "memory",
        f"searches with {_FEW:,} and {_MANY:,} entries, {scale.reads} times each",
        ["ms", f"{_FEW:,}", f"{_MANY:,}", "ratio", f"p95 of {_MANY:,}"],
    )
    with contextlib.closing(few.memory), contextlib.closing(many.memory):
        first = _milliseconds(lambda: many.memory.find("warm"))
        result.notes.append(f"the first search of a process reads {_MANY:,} vectors: {first:.0f} ms")
        result.notes.append(f"{_MANY:,} entries take {many.path.stat().st_size / 1e6:.0f} MB on disk")
        taken = _search_all({"few": few.memory, "many": many.memory}, scale.reads)
        taken["by meaning, just stored by another process", "many"] = _find_anothers(stage, many, scale.reads)
    taken["store one", "few"], taken["store one", "many"] = few.stored, many.stored[-_FEW:]
    for name in dict.fromkeys(name for name, _ in taken):
        low, high = taken.get((name, "few")), taken[name, "many"]
        middle = Spread.of(high).median
        compared = (
            [f"{Spread.of(low).median:.2f}", ratio(middle, Spread.of(low).median)] if low else ["–", "–"]
        )
        result.rows.append([name, compared[0], f"{middle:.2f}", compared[1], f"{percentile(high, 0.95):.2f}"])
        result.goals.append(
            Goal(f"{name}: < {_GOAL_MS:g} ms at {_MANY:,}", f"{middle:.2f}", middle < _GOAL_MS)
        )
    result.numbers = {", ".join(key): values for key, values in taken.items()}
    return result


def _fill(directory: Path, count: int) -> Filled:
    path = directory / "memory.db"
    memory, chance = SqliteMemory(path, WordLlama()), random.Random(count)
    memory.store("the model is loaded by this one", kind="work")
    stored = []
    for number in range(count - 1):
        text = (
            f"the {chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_THINGS)} of item_{number}"
            f" because the {chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_THINGS)} first"
        )
        tags = [f"area{chance.randrange(20)}", f"level{chance.randrange(4)}"]
        began = time.perf_counter()
        memory.store(text, kind=chance.choice(["lesson", "tool"]), tags=tags, scope=f"project:{number % 10}")
        stored.append((time.perf_counter() - began) * 1000)
    return Filled(path, memory, stored)


def _search_all(memories: Mapping[str, Memory], reads: int) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each search on each memory, taken in turn."""
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(reads + 2):
        for name, search in SEARCHES.items():
            for size, memory in memories.items():
                spent = _milliseconds(lambda memory=memory, search=search: search(memory))  # type: ignore[misc]
                if number >= 2:  # the first warm the caches
                    taken[name, size].append(spent)
    return taken


def _find_anothers(stage: Stage, filled: Filled, times: int) -> list[float]:
    """How long the search takes that must first read what another process has stored since the last one."""
    other = stage.start([sys.executable, "-m", "benchmarks.measures.memory", str(filled.path)])
    taken = []
    for number in range(times):
        id = other.ask("store", text=f"penguin number {number} swims")["id"]
        began = time.perf_counter()
        found = filled.memory.find(f"penguin number {number} swims")
        taken.append((time.perf_counter() - began) * 1000)
        if id not in [each.entry.id for each in found]:
            raise RuntimeError(f"entry {id} of another process was not found")
        filled.memory.delete(id=id)
    return taken


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """The other process: stores what it is asked to."""
    die_with_parent()
    memory = SqliteMemory(Path(sys.argv[1]), WordLlama())
    for line in sys.stdin:
        print(json.dumps({"id": memory.store(json.loads(line)["text"], kind="work")}), flush=True)


if __name__ == "__main__":
    main()
