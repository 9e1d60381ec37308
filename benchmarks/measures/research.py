"""What research costs per trial, early and late in a long run: the model and the evaluator answer at once.

Each trial is a session, a commit, a sandboxed process for the recipe, another for the evaluator, a decision and a row.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.rows import add_peers
from benchmarks.result import Goal, Result
from benchmarks.sample import ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage, die_with_parent, place_of
from benchmarks.tree import TreeWatch
from ratchet.config import load_settings
from ratchet.engines import Capabilities, Readiness, Request, Session
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Usage
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.runtime import Kinds, Worker, open_ledger, open_runtime

_GOAL = 60.0
_FLAT = 1.2
# A rate is that of a tenth of the run, and of no fewer trials than these: a second of a shared machine says little.
_LEAST_WINDOW = 100
_WARM = 10
# As many as a run makes at once by itself, and so many that what they wait for is shared by most: trials that only
# compute, as most real ones do, gain nothing from more than there are cores.
_USUAL, _MANY = os.cpu_count() or 1, 16
_SPECIALIST = """[[specialist]]
name = "s{number}"
"""
_RECIPE = "VALUE = 0\n\n\ndef run(given):\n    return VALUE\n"
# Scores that look like chance: the better the best, the rarer a new one.
_EVALUATOR = "def score(given):\n    return {'score': given['trial']['answer'] * 716_539 % 1_000_003}\n"
_TASK = """[task]
name = "instant"
recipe = ["recipe.py"]
[trial]
function = "run"
file = "recipe.py"
seconds = 5.0
[evaluator]
directory = "evaluator"
function = "score"
file = "evaluate.py"
seconds = 5.0
[keep]
deterministic = true
[slots]
count = {at_once}
"""


class Instant:
    """An engine whose model answers at once: it writes the next number into the recipe."""

    name = "instant"
    capabilities = Capabilities(edits_files=True, reports_usage=True)

    def __init__(self, marks: dict[int, tuple[float, float, float]], wanted: set[int]) -> None:
        self._marks = marks
        self._wanted = wanted
        self._count = 0

    async def propose(self, request: Request) -> Session:
        self._count += 1
        if self._count in self._wanted:
            self._marks[self._count] = _now()
        assert request.workspace is not None
        (request.workspace / "recipe.py").write_text(_RECIPE.replace("0", str(self._count), 1))
        return Session(
            self.name, text=f"HYPOTHESIS: {self._count} is a better number", usage=Usage(100, 0, 10)
        )

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def measure(stage: Stage, scale: Scale) -> Result:
    window = max(_LEAST_WINDOW, scale.attempts // 10)
    places = [_WARM, *(number for number in (1_000,) if number < scale.attempts), scale.attempts - window]
    result = Result(
        "research",
        f"trials with a model and an evaluator that answer at once, {_USUAL} and {_MANY} at a time, two sandboxed "
        f"processes each; {window:,} trials from number {' and '.join(f'{place:,}' for place in places)} on",
        [
            "per trial",
            *(f"trials/s at {place:,}" for place in places),
            "last to first",
            "CPU ms",
            "CPU ms, with children",
            "RSS MB",
            "RSS MB, with children",
        ],
    )
    for at_once, database in itertools.product((_USUAL, _MANY), DATABASES):
        found = _run(stage, database, {"count": scale.attempts, "places": places, "window": window}, at_once)
        rates = [each["rate"] for each in found["windows"]]
        slower = rates[0] / rates[-1]
        cpu = found["windows"][-1]["cpu"]
        shown = f"{SHOWN[database]}, {at_once} at a time"
        result.rows.append(
            [
                f"Ratchet, {shown}",
                *(f"{rate:.0f}" for rate in rates),
                ratio(rates[-1], rates[0]),
                f"{cpu:.1f}",
                f"{found['tree_cpu']:.1f}",
                f"{found['rss_mb']:.0f}",
                f"{found['tree_rss_mb']:.0f}",
            ]
        )
        result.goals += [
            Goal(f"{shown}: at least {_GOAL:.0f} trials/s", f"{min(rates):.0f}/s", min(rates) >= _GOAL),
            Goal(f"{shown}: the last within 20 % of the first", f"{slower:.2f}× slower", slower <= _FLAT),
        ]
        result.numbers[f"{database}, {at_once} at a time"] = found
    result.notes.append(
        "CPU and RSS are those of the process that runs the loop; with children, the sandboxes' and git's are added, "
        "not the database server's, and memory that processes share is counted for each"
    )
    if stage.peers:
        add_peers(stage, scale, result)
    return result


def _run(stage: Stage, database: str, asked: dict[str, Any], at_once: int) -> dict[str, Any]:
    place = place_of(stage.new_home(database))
    child = stage.start([sys.executable, "-m", "benchmarks.measures.research", json.dumps(place)])
    try:
        with TreeWatch(child.pid) as watch:
            found = child.ask("trials", **asked, at_once=at_once)
    finally:
        child.stop()
    late = found["windows"][-1]
    found["tree_cpu"] = watch.cpu_between(late["begin"], late["end"]) / asked["window"] * 1000
    found["tree_rss_mb"] = watch.peak_mb
    return found


def main() -> None:
    """The process that makes the trials, with a worker in it as a server has."""
    die_with_parent()
    place = json.loads(sys.argv[1])
    asked = json.loads(sys.stdin.readline())
    task = Path(place["home"]) / "instant"
    (task / "evaluator").mkdir(parents=True)
    at_once = asked["at_once"]
    roster = "".join(_SPECIALIST.format(number=number) for number in range(at_once))
    (task / "task.toml").write_text(_TASK.format(at_once=at_once) + roster)
    (task / "recipe.py").write_text(_RECIPE)
    (task / "evaluator" / "evaluate.py").write_text(_EVALUATOR)
    marks: dict[int, tuple[float, float, float]] = {}
    window = asked["window"]
    engine = Instant(marks, {edge for begin in asked["places"] for edge in (begin, begin + window)})

    def opened(_name: str | None, _surroundings: EngineContext) -> Instant:
        return engine

    async def carry(job: Any) -> Any:
        ended = await research_run(job, opened)
        marks.setdefault(asked["places"][-1] + window, _now())
        print(json.dumps(_told(marks, asked["places"], window)), flush=True)
        return ended

    loaded = load_settings({**place, "research.stagger_seconds": 0.0}, env={})
    kinds = Kinds()
    kinds.add(KIND, carry)
    ledger = open_ledger(loaded)
    runtime = open_runtime(loaded, ledger, kinds)
    Worker(runtime).start()
    wanted = ResearchRequest(task=str(task), trials=asked["count"], parallel=at_once)
    start_research(runtime, wanted)
    sys.stdin.read()


def _now() -> tuple[float, float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _told(marks: dict[int, tuple[float, float, float]], places: list[int], window: int) -> dict[str, Any]:
    windows = []
    for place in places:
        begin, end = marks[place], marks[place + window]
        windows.append(
            {
                "begin": begin[0],
                "end": end[0],
                "rate": window / (end[0] - begin[0]),
                "cpu": (end[1] - begin[1]) / window * 1000,
            }
        )
    return {"windows": windows, "rss_mb": max(mark[2] for mark in marks.values())}


if __name__ == "__main__":
    main()
