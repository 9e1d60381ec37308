"""A thousand trials at a time, of which only the trials are made up: how long they take, and how they score.

The supervisor, the strategy, sessions, workspaces, commits, decisions and the ledger are those of a real run. Time that
nothing but a simulated trial takes is skipped; all other time passes as it does, so that a slot waits as long for the
process that carries the run as it would in earnest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import json
import queue
import random
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.measures.research import Instant
from benchmarks.result import Goal, Result
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage, die_with_parent, place_of
from ratchet.config import load_settings
from ratchet.engines.registry import EngineContext
from ratchet.ledger import Transaction
from ratchet.placement import PlacedWork, Ticket, WorkDone
from ratchet.research.jobs import KIND
from ratchet.research.measurement.result import Measurement
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.runtime import JobContext, Kinds, Worker, open_ledger, open_runtime

_FLAT = 1.5
# A trial takes so long, between half and one and a half times of it.
_MEAN_SECONDS = 600.0
_TASK = """[task]
name = "simulated"
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
count = {slots}
"""
_SPECIALIST = """[[specialist]]
name = "s{number}"
"""


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait: when nothing is to be done, here or in a thread, its next timer is due."""

    ahead = 0.0
    _elsewhere = 0

    def time(self) -> float:
        return super().time() + self.ahead

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self._elsewhere += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._is_back)
        return future

    def _is_back(self, _future: Any) -> None:
        self._elsewhere -= 1

    def _run_once(self) -> None:
        inside: Any = self
        if not inside._ready and not self._elsewhere:
            while inside._scheduled and inside._scheduled[0]._cancelled:
                heapq.heappop(inside._scheduled)._scheduled = False
                inside._timer_cancelled_count -= 1
            if inside._scheduled:
                self.ahead += max(0.0, inside._scheduled[0].when() - self.time())
        super()._run_once()  # type: ignore[misc]


@dataclass
class SimulatedPlacement:
    """Trials that take their time and do nothing. Each is packed as for a node, which a real one would be."""

    seconds: float
    hear: Callable[[int], None] = field(default=lambda _: None)
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    busy_seconds: float = 0.0
    done: int = 0
    at_once: int = 0
    most: int = 0

    async def place(self, work: PlacedWork[Any]) -> Ticket[Any]:
        return Ticket(work)

    async def watch(self, ticket: Ticket[Any]) -> AsyncIterator[WorkDone[Any]]:
        wanted = (await asyncio.to_thread(ticket.work.there)).given
        took = self.seconds * self.chance.uniform(0.5, 1.5)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(took)
        finally:
            self.at_once -= 1
        self.busy_seconds += took
        self.done += 1
        self.hear(self.done)
        score = float(int(wanted.commit[:12], 16))
        yield WorkDone(
            Measurement(
                commit=wanted.commit,
                seed=wanted.seed,
                held_out=wanted.held_out,
                score=score,
                wall_ms=took * 1000,
            )
        )

    async def cancel(self, ticket: Ticket[Any]) -> None:
        """It ended with its watcher."""


class TimedJob(JobContext):
    """A job that counts how long its transactions take."""

    spent = 0.0

    @contextlib.contextmanager
    def write(self) -> Iterator[Transaction]:
        began = time.perf_counter()
        try:
            with super().write() as tx:
                yield tx
        finally:
            self.spent += time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Marked:
    """The run at one moment: processor time, time in transactions and statements until then."""

    done: int
    cpu: float
    database: float
    statements: int


def carried(job: JobContext, slots: int, count: int, seconds: float, told: dict[str, Any]) -> Any:
    """Carry a run in this thread, in a time of its own; `told` gets what it took."""
    timed = TimedJob(job.runtime, job.job, job.process_id)
    engine = Instant({}, set())
    loop = SkippingLoop()
    marks: dict[int, Marked] = {}
    # Of the trials after which another one begins, and not the first quarter of those: all sessions have begun at once.
    steady = count - slots
    places = (steady // 4, steady // 2, 3 * steady // 4, steady)

    def opened(_name: str | None, _surroundings: EngineContext) -> Instant:
        return engine

    statements = 0

    def count_statement(*_: Any) -> None:
        nonlocal statements
        statements += 1

    def mark(done: int) -> None:
        if done in places:
            used = resource.getrusage(resource.RUSAGE_SELF)
            marks[done] = Marked(done, used.ru_utime + used.ru_stime, timed.spent, statements)

    sa.event.listen(job.ledger.engine, "before_cursor_execute", count_statement)

    placement = SimulatedPlacement(seconds, mark)
    began = time.monotonic()
    try:
        ended = loop.run_until_complete(research_run(timed, opened, placement))
    finally:
        loop.close()
    told.update(
        trials=ended["trials"],
        most_at_once=placement.most,
        simulated_seconds=time.monotonic() - began + loop.ahead,
        seconds=time.monotonic() - began,
        busy_seconds=placement.busy_seconds,
        statements=statements,
        windows=_windows(marks, places),
    )
    return ended


def _windows(marks: dict[int, Marked], places: tuple[int, ...]) -> list[dict[str, float]]:
    """What a trial took between the moments that were marked."""
    found = []
    known = [marks[place] for place in places if place in marks]
    for before, after in itertools.pairwise(known):
        trials = after.done - before.done
        found.append(
            {
                "cpu_ms": (after.cpu - before.cpu) / trials * 1000,
                "database_ms": (after.database - before.database) / trials * 1000,
                "statements": (after.statements - before.statements) / trials,
            }
        )
    return found


def simulated(place: dict[str, str], slots: int, trials: int, seconds: float) -> dict[str, Any]:
    """A run of so many simulated trials in so many slots, by a worker of this process."""
    task = Path(place["home"]) / "simulated"
    (task / "evaluator").mkdir(parents=True)
    roster = "".join(_SPECIALIST.format(number=number) for number in range(slots))
    (task / "task.toml").write_text(_TASK.format(slots=slots) + roster)
    (task / "recipe.py").write_text("VALUE = 0\n\n\ndef run(given):\n    return VALUE\n")
    (task / "evaluator" / "evaluate.py").write_text(
        "def score(given):\n    return {'score': given['trial']['answer']}\n"
    )
    told: dict[str, Any] = {}
    over: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def carry(job: JobContext) -> Any:
        failed: BaseException | None = None
        try:
            return carried(job, slots, trials, seconds, told)
        except BaseException as error:
            failed = error
            raise
        finally:
            over.put(failed)

    loaded = load_settings({**place, "research.stagger_seconds": 0.0}, env={})
    kinds = Kinds()
    kinds.add(KIND, carry)
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, kinds)
        worker = Worker(runtime)
        worker.start()
        start_research(runtime, ResearchRequest(task=str(task), trials=trials, parallel=slots))
        failed = over.get()
        worker.stop()
    if failed is not None:
        raise failed
    told["use"] = told["busy_seconds"] / (slots * told["simulated_seconds"])
    told["most_per_second"] = told["trials"] / told["seconds"]
    return told


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "simulation",
        f"research with simulated trials of {_MEAN_SECONDS:.0f} s (half to one and a half times), of which "
        f"{scale.slots[0]:,} and {scale.slots[1]:,} run at once; all but the trials is real",
        [
            "slots",
            "trials",
            "CPU ms per trial, second quarter",
            "last quarter",
            "in transactions, ms per trial, second quarter",
            "last quarter",
            "statements per trial, second quarter",
            "last quarter",
            "trials/s at most",
            "slots in use",
            "saturates at trials of",
        ],
    )
    for database in DATABASES:
        last = []
        for slots in scale.slots:
            found = _run(stage, database, slots, slots * scale.rounds)
            windows = found["windows"]
            first, late = windows[0], windows[-1]
            last.append(late)
            result.rows.append(
                [
                    f"{SHOWN[database]}, {slots:,}",
                    f"{found['trials']:,}",
                    *(
                        f"{each[what]:.1f}"
                        for what in ("cpu_ms", "database_ms", "statements")
                        for each in (first, late)
                    ),
                    f"{found['most_per_second']:.0f}",
                    f"{found['use']:.0%}",
                    f"{slots / found['most_per_second']:.0f} s",
                ]
            )
            result.numbers[f"{database}, {slots}"] = found
            for what, words in (
                ("cpu_ms", "CPU"),
                ("database_ms", "time in transactions"),
                ("statements", "statements"),
            ):
                times = late[what] / first[what]
                result.goals.append(
                    Goal(
                        f"{SHOWN[database]}, {slots:,} slots: {words} per trial stays flat",
                        f"{times:.2f}×",
                        times <= _FLAT,
                    )
                )
        times, few, many = last[1]["cpu_ms"] / last[0]["cpu_ms"], *scale.slots
        result.notes.append(
            f"{SHOWN[database]}: a trial takes {times:.2f}× the CPU with {many:,} slots that it takes with {few:,}"
        )
    result.notes.append(
        "one process carries the run; simulated are the time and the score of each trial, and the model's answer"
    )
    result.notes.append(
        "quarters are of the trials after which another one begins; what saturates is the one process: trials that are "
        "shorter than the last column leave slots idle"
    )
    return result


def _run(stage: Stage, database: str, slots: int, trials: int) -> dict[str, Any]:
    place = place_of(stage.new_home(database))
    child = stage.start([sys.executable, "-m", "benchmarks.measures.simulation", json.dumps(place)])
    try:
        return child.ask("simulate", slots=slots, trials=trials, seconds=_MEAN_SECONDS)
    finally:
        child.stop()


def main() -> None:
    """The process that carries the run."""
    die_with_parent()
    place = json.loads(sys.argv[1])
    asked = json.loads(sys.stdin.readline())
    run = functools.partial(simulated, place, asked["slots"], asked["trials"], asked["seconds"])
    print(json.dumps(run()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
