"""A sandboxed Python node next to the same work in a plain process of its own, which nothing confines."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, cpu_seconds, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage, die_with_parent
from ratchet.sandbox import Node, granted, run

_GOAL = 5.0
_FUNCTION = "def run(values):\n    return {'sum': sum(values)}\n"
_PROGRAM = f"import json, sys\n{_FUNCTION}\njson.dump(run(json.load(sys.stdin)), sys.stdout)"
_INPUT = b"[1, 2, 3]"
_OUTPUT = {"sum": 6}
_SHOWN = {
    "node": "Ratchet, sandboxed node",
    "python": "subprocess, python",
    "bare": "subprocess, python -I -S",
}
_FLAGS = {"python": [], "bare": ["-I", "-S"]}


def measure(stage: Stage, scale: Scale) -> Result:
    cores = len(os.sched_getaffinity(0))
    count, side_by_side = scale.steps, 2 * cores
    result = Result(
        "nodes",
        f"JSON in, a function, JSON out, {count} times one after the other, then {side_by_side} at a time "
        f"on {cores} cores",
        [
            "ms",
            "one p50",
            "one p95",
            "CPU/run",
            "runs/s",
            "one, to subprocess",
            "CPU, to it",
            "runs/s, to it",
        ],
    )
    found = [_run(stage, count, side_by_side) for _ in range(scale.repeats)]
    one = {way: Spread.of([percentile(each[way]["taken"], 0.5) for each in found]) for way in _SHOWN}
    rate = {way: Spread.of([each[way]["rate"] for each in found]) for way in _SHOWN}
    cpu = {way: Spread.of([each[way]["cpu"] for each in found]) for way in _SHOWN}
    for way, shown in _SHOWN.items():
        late = Spread.of([percentile(each[way]["taken"], 0.95) for each in found])
        result.rows.append(
            [
                shown,
                one[way].show(2),
                late.show(2),
                cpu[way].show(2),
                rate[way].show(),
                ratio(one[way].median, one["python"].median),
                ratio(cpu[way].median, cpu["python"].median),
                ratio(rate[way].median, rate["python"].median),
            ]
        )
    quicker = one["python"].median / one["node"].median
    cheaper = cpu["python"].median / cpu["node"].median
    more = rate["node"].median / rate["python"].median
    result.goals.append(Goal(f"a node at least {_GOAL:.0f}× quicker", f"{quicker:.1f}×", quicker >= _GOAL))
    result.goals.append(Goal(f"a node at least {_GOAL:.0f}× less CPU", f"{cheaper:.1f}×", cheaper >= _GOAL))
    result.goals.append(Goal(f"at least {_GOAL:.0f}× as many nodes/s", f"{more:.1f}×", more >= _GOAL))
    result.notes.append(f"layers that were on: {', '.join(sorted(granted().names - {'overlayfs'}))}")
    result.numbers["runs"] = found
    return result


def _run(stage: Stage, count: int, side_by_side: int) -> dict[str, Any]:
    child = stage.start([sys.executable, "-m", "benchmarks.measures.nodes"])
    try:
        return child.ask("nodes", count=count, side_by_side=side_by_side)
    finally:
        child.stop()


def main() -> None:
    """A process that runs nodes and nothing else, so that its CPU time is theirs."""
    die_with_parent()
    asked = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(_measured(asked["count"], asked["side_by_side"]))), flush=True)
    sys.stdin.read()


async def _measured(count: int, side_by_side: int) -> dict[str, Any]:
    for _ in range(side_by_side):  # every warm parent started, every file read
        await _node()
    taken: dict[str, list[float]] = {way: [] for way in _SHOWN}
    cpu = dict.fromkeys(_SHOWN, 0.0)
    # In turn, so that whatever else the machine does hits all alike. CPU is counted in ticks, hence in blocks.
    for _ in range(10):
        for way in _SHOWN:
            used = _cpu_ms()
            for _ in range(max(1, count // 10)):
                began = time.perf_counter()
                await (_node() if way == "node" else asyncio.to_thread(_process, way))
                taken[way].append((time.perf_counter() - began) * 1000)
            cpu[way] += _cpu_ms() - used
    rates = {way: await _rate(way, count, side_by_side) for way in _SHOWN}
    return {
        way: {"taken": taken[way], "cpu": cpu[way] / len(taken[way]), "rate": rates[way]} for way in _SHOWN
    }


async def _rate(way: str, count: int, side_by_side: int) -> float:
    began = time.perf_counter()
    if way == "node":
        gate = asyncio.Semaphore(side_by_side)

        async def one() -> None:
            async with gate:
                await _node()

        await asyncio.gather(*(one() for _ in range(count)))
    else:
        with ThreadPoolExecutor(side_by_side) as pool:
            await asyncio.to_thread(lambda: list(pool.map(_process, [way] * count)))
    return count / (time.perf_counter() - began)


async def _node() -> None:
    done = await run(Node(_FUNCTION), stdin=_INPUT)
    if not done.ok or done.value != _OUTPUT:
        raise RuntimeError(f"a node failed: {done}")


def _process(way: str) -> None:
    command = [sys.executable, *_FLAGS[way], "-c", _PROGRAM]
    done = subprocess.run(command, input=_INPUT, capture_output=True, check=True)
    if json.loads(done.stdout) != _OUTPUT:
        raise RuntimeError(f"{way} answered {done.stdout!r}")


def _cpu_ms() -> float:
    """CPU time of this process, of those it started, and of what they have waited for."""
    return sum(map(cpu_seconds, [os.getpid(), *_descendants(os.getpid())])) * 1000


def _descendants(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except FileNotFoundError:
        return []
    return [*children, *(below for child in children for below in _descendants(child))]


if __name__ == "__main__":
    main()
