"""What the loop itself costs per attempt, early and late in a long run: the engine and the judge answer at once."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.result import Goal, Result
from benchmarks.sample import ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage, die_with_parent, place_of
from ratchet.config import load_settings
from ratchet.engines import Request
from ratchet.judges import Candidate, Judged
from ratchet.judges.judge import ruled
from ratchet.kernel import Outcome, StepStatus
from ratchet.loop import GitTrunk, Plan, attempt
from ratchet.runtime import JobContext, Kinds, Worker, enter_run, open_ledger, open_runtime, start_run
from ratchet.workspaces import Repository, memory_directory
from tests.engines.fixed import FixedEngine

_GOAL_MS = 10.0
_FLAT = 1.5
_WINDOW = 100
_REF = "refs/heads/best"
# A small program: what an attempt checks out and commits.
_FILES = {f"part{number % 4}/file{number}.py": f"value = {number}\n".encode() * 20 for number in range(20)}


class Tenth:
    """A judge that keeps every tenth change, so that both ways are paid for."""

    name = "tenth"
    hash = "0" * 64

    def __init__(self, number: int) -> None:
        self._number = number

    async def judge(self, candidate: Candidate) -> Judged:
        passed = self._number % 10 == 0
        return ruled(self, Outcome.PASSED if passed else Outcome.FAILED, "by its number")


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "loop",
        f"attempts with an engine and a judge that answer at once, {len(_FILES)} files; the first and the last "
        f"{_WINDOW} of {scale.attempts}",
        ["ms per attempt", "CPU early", "CPU late", "late to early", "wall early", "wall late"],
    )
    for database in DATABASES:
        found = _run(stage, database, scale.attempts)
        early, late = found["early"], found["late"]
        grown = late["cpu"] / early["cpu"]
        result.rows.append(
            [
                f"Ratchet, {SHOWN[database]}",
                f"{early['cpu']:.2f}",
                f"{late['cpu']:.2f}",
                ratio(late["cpu"], early["cpu"]),
                f"{early['wall']:.2f}",
                f"{late['wall']:.2f}",
            ]
        )
        shown = SHOWN[database]
        result.goals += [
            Goal(
                f"{shown}: at most {_GOAL_MS:.0f} ms of CPU", f"{late['cpu']:.2f} ms", late["cpu"] <= _GOAL_MS
            ),
            Goal(f"{shown}: flat", f"{grown:.2f}×", grown <= _FLAT),
        ]
        result.numbers[database] = found
    result.notes.append("CPU is that of the process and of every git it runs; flat means within 1.5× early.")
    return result


def _run(stage: Stage, database: str, count: int) -> dict[str, Any]:
    place = place_of(stage.new_home(database))
    child = stage.start([sys.executable, "-m", "benchmarks.measures.loop", json.dumps(place)])
    try:
        return child.ask("attempts", count=count)
    finally:
        child.stop()


def main() -> None:
    """The process that makes the attempts, with a worker in it as a server has."""
    die_with_parent()
    place = json.loads(sys.argv[1])
    count = json.loads(sys.stdin.readline())["count"]
    path = Path(place["home"]) / "repo.git"
    repository = Repository.create(path, workspaces=memory_directory(path))
    first = repository.commit_files(_FILES, parent=None, message="Begin")
    repository.advance(_REF, first, expected=None)

    async def climb(job: JobContext) -> None:
        with job.write() as tx:
            enter_run(tx, job.run_id)
        best = first
        marks = []
        for number in range(count):
            if number in (10, 10 + _WINDOW, count - _WINDOW):
                marks.append(_now())
            ended = await attempt(job, f"trial {number}", _plan(repository, best, number))
            best = ended.commit if ended.kept and ended.commit else best
        marks.append(_now())
        early, late = _between(marks[0], marks[1]), _between(marks[2], marks[3])
        print(json.dumps({"early": early, "late": late}), flush=True)

    loaded = load_settings(place, env={})
    kinds = Kinds()
    kinds.add("climb", climb)
    ledger = open_ledger(loaded)
    runtime = open_runtime(loaded, ledger, kinds)
    Worker(runtime).start()
    with ledger.write(actor="bench") as tx:
        start_run(tx, runtime, "climb", kind="research", name="bench")
    sys.stdin.read()


def _plan(repository: Repository, base: str, number: int) -> Plan:
    return Plan(
        trunk=GitTrunk(repository=repository, base=base, ref=_REF, message=f"Trial {number}"),
        engine=FixedEngine({"part3/file3.py": f"value = {number}\n"}),
        request=Request("climb"),
        judge=Tenth(number),
        discarded=StepStatus.FAILED,
    )


def _now() -> tuple[float, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)


def _between(begin: tuple[float, float], end: tuple[float, float]) -> dict[str, float]:
    return {name: (end[i] - begin[i]) / _WINDOW * 1000 for i, name in enumerate(("wall", "cpu"))}


if __name__ == "__main__":
    main()
