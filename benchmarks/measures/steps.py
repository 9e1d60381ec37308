"""A durable step, which is two transactions, next to one bare commit on the same disk."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.barecommit import bare_commit
from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage, die_with_parent, place_of
from ratchet.config import load_settings
from ratchet.kernel import AttemptId, RunStatus
from ratchet.ledger import change_run
from ratchet.runtime import JobContext, Kinds, Worker, open_ledger, open_runtime, run_step, start_run

_GOAL = 3.0
_TRANSACTIONS = 2


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "steps",
        f"run_step with work that does nothing, {scale.steps} steps of one run, in turn with bare commits",
        ["ms", "step p50", "step p95", "CPU/step", "per transaction", "bare commit", "transaction, to bare"],
    )
    for database in DATABASES:
        found = [_run(stage, database, scale.steps) for _ in range(scale.repeats)]
        step = Spread.of([percentile(each["steps"], 0.5) for each in found])
        late = Spread.of([percentile(each["steps"], 0.95) for each in found])
        bare = Spread.of([percentile(each["bare"], 0.5) for each in found])
        cpu = Spread.of([each["cpu"] for each in found])
        transaction = step.median / _TRANSACTIONS
        times = transaction / bare.median
        result.rows.append(
            [
                f"Ratchet, {SHOWN[database]}",
                step.show(2),
                late.show(2),
                cpu.show(2),
                f"{transaction:.2f}",
                bare.show(2),
                ratio(transaction, bare.median),
            ]
        )
        goal = f"{SHOWN[database]}: a transaction of a step within {_GOAL:.0f}× of one bare commit"
        result.goals.append(Goal(goal, f"{times:.2f}×", times <= _GOAL))
        result.numbers[database] = found
    return result


def _run(stage: Stage, database: str, count: int) -> dict[str, Any]:
    place = place_of(stage.new_home(database))
    child = stage.start([sys.executable, "-m", "benchmarks.measures.steps", json.dumps(place)])
    try:
        value: dict[str, Any] = child.ask("steps", count=count)
        return value
    finally:
        child.stop()


def main() -> None:
    """The process that does the steps, with a worker in it as a server has."""
    die_with_parent()
    place = json.loads(sys.argv[1])
    count = json.loads(sys.stdin.readline())["count"]
    bare = bare_commit(place["database_url"], Path(place["home"]))

    async def steps(job: JobContext) -> dict[str, Any]:
        async def nothing(_attempt: AttemptId) -> None:
            return None

        with job.write() as tx:
            for status in (RunStatus.PLANNING, RunStatus.PLANNED, RunStatus.RUNNING):
                change_run(tx, job.run_id, status)
        await run_step(job, "warm up", nothing)
        taken, floor, used = [], [], 0.0
        for number in range(count):
            floor.append(bare.seconds() * 1000)
            began, cpu = time.perf_counter(), time.thread_time()
            await run_step(job, f"step {number}", nothing)
            taken.append((time.perf_counter() - began) * 1000)
            used += time.thread_time() - cpu
        answer = {"steps": taken, "bare": floor, "cpu": used / count * 1000}
        print(json.dumps(answer), flush=True)
        return {}

    loaded = load_settings(place, env={})
    kinds = Kinds()
    kinds.add("steps", steps)
    ledger = open_ledger(loaded)
    runtime = open_runtime(loaded, ledger, kinds)
    Worker(runtime).start()
    with ledger.write(actor="bench") as tx:
        start_run(tx, runtime, "steps", kind="workflow", name="bench")
    sys.stdin.read()


if __name__ == "__main__":
    main()
