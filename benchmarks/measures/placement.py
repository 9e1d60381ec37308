"""Placing work: what it costs beside a bare task of Ray, what a second node gives, and how soon a run is taken over.

Ray is looked for in this Python, or in the one that RATCHET_TEST_RAY_PYTHON names. Head and nodes are processes of this
machine on loopback, so that the tasks that are to show what a second node gives only sleep.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import Spread, percentile, ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.placement import LOCAL, Brokered, Order, PlacedWork, Placement, carry_out
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import open_ledger, open_runtime
from tests.placement.test_ray import RayCluster
from tests.research.hill import write_hill
from tests.runtime.worker_process import load
from tests.s3 import KEYS, start_s3

_MOST_RATIO, _MOST_MS, _LEAST_GAIN, _MOST_TAKEOVER = 1.5, 40.0, 1.9, 15.0
_SLOTS = 2
_PATIENCE_SECONDS = 600.0
# As they are without a setting; the worker of the tests is quicker to notice a death.
_USUAL = {
    "runtime.heartbeat_seconds": 2.0,
    "runtime.dead_after_seconds": 10.0,
    "runtime.retry_base_seconds": 1.0,
    "runtime.poll_seconds": 2.0,
}
_BARE = """
import os, sys, time
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.chdir("/")
import ray
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
task = ray.remote(max_retries=0)(lambda given: given)
ray.get(task.remote(1))
for _ in sys.stdin:
    began = time.perf_counter()
    ray.get(task.remote(1))
    print((time.perf_counter() - began) * 1000, flush=True)
"""


def measure(stage: Stage, scale: Scale) -> Result:
    result = Result(
        "placement",
        f"an empty task {scale.steps} times one after the other, tasks that sleep for a second, and a run whose first"
        " machine is killed",
        ["placed", "p50", "p95", "to bare"],
    )
    direct = [_timed(_directly, scale.steps) for _ in range(scale.repeats)]
    local = [_timed(lambda: carry_out(LOCAL, _work()), scale.steps) for _ in range(scale.repeats)]
    result.rows.append(_row("a call, µs", [[each * 1000 for each in run] for run in direct], None))
    result.rows.append(_row("`local`, µs", [[each * 1000 for each in run] for run in local], direct, 1000))
    pretended = _brokered([sys.executable, "-P", "-m", "ratchet.placement.processes", "1"], stage)
    try:
        ways = [_timed(lambda: carry_out(pretended, _work()), scale.steps) for _ in range(scale.repeats)]
    finally:
        pretended.close()
    result.rows.append(_row("`processes`, ms", ways, None))
    python = os.environ.get("RATCHET_TEST_RAY_PYTHON") or (
        sys.executable if importlib.util.find_spec("ray") else ""
    )
    if python:
        _measure_ray(python, stage, scale, result)
    else:
        result.notes.append("Ray is not installed here: set RATCHET_TEST_RAY_PYTHON to a Python that has it")
    taken = [_takeover(stage, number) for number in range(scale.repeats)]
    spread = Spread.of(taken)
    result.goals.append(
        Goal(
            f"a run is taken over within {_MOST_TAKEOVER:.0f} s",
            f"{spread.show(1)} s from the kill to the next trial",
            spread.median <= _MOST_TAKEOVER,
        )
    )
    result.numbers["takeover"] = taken
    return result


def _measure_ray(python: str, stage: Stage, scale: Scale, result: Result) -> None:
    cluster = RayCluster(python, 1, cpus=_SLOTS)
    try:
        placement = _brokered([python, "-P", "-m", "ratchet.placement.ray_tasks", cluster.address], stage)
        both = [_in_turns(python, cluster.address, placement, scale.steps) for _ in range(scale.repeats)]
        bare, placed = [each[0] for each in both], [each[1] for each in both]
        result.rows.append(_row("Ray, a bare task, ms", bare, None))
        result.rows.append(_row("`ray`, ms", placed, bare))
        one = [_rate(placement, _SLOTS) for _ in range(scale.repeats)]
        cluster.do("add")
        two = [_rate(placement, 2 * _SLOTS) for _ in range(scale.repeats)]
        placement.close()
    finally:
        cluster.close()
    base, ours = (Spread.of([percentile(each, 0.5) for each in runs]).median for runs in (bare, placed))
    gain = Spread.of(two).median / Spread.of(one).median
    result.goals += [
        Goal(f"at most {_MOST_RATIO}× of a bare task", ratio(ours, base), ours <= _MOST_RATIO * base),
        Goal(f"at most {_MOST_MS:.0f} ms", f"{ours:.1f} ms", ours <= _MOST_MS),
        Goal(f"two nodes at least {_LEAST_GAIN}× of one", f"{gain:.2f}×", gain >= _LEAST_GAIN),
    ]
    result.numbers["ray"] = {"bare": bare, "placed": placed, "one": one, "two": two}


def _brokered(command: list[str], stage: Stage) -> Brokered:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    return Brokered(command, str(stage.new_directory("cache")))


def _work(function: str = "echo", given: object = None) -> PlacedWork[object]:
    order = Order(f"tests.placement.errands:{function}", given)
    return PlacedWork(name=function, here=_directly, there=lambda: order)


async def _directly() -> object:
    return None


def _timed(
    once: Callable[[], Awaitable[object]], times: int, *, between: Callable[[], None] = lambda: None
) -> list[float]:
    """Milliseconds of each, after one that starts what has to be started."""

    async def main() -> list[float]:
        await once()
        between()
        taken = []
        for _ in range(times):
            between()
            began = time.perf_counter()
            await once()
            taken.append((time.perf_counter() - began) * 1000)
        return taken

    return asyncio.run(main())


def _in_turns(python: str, address: str, placement: Placement, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds of bare tasks and of placed ones, one after the other, so that what else the machine does burdens
    both."""
    command = [python, "-c", _BARE, address]
    bare: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        asked, said = child.stdin, child.stdout

        def ask() -> None:
            asked.write("go\n")
            asked.flush()
            bare.append(float(said.readline()))

        async def once() -> None:
            await carry_out(placement, _work())

        placed = _timed(once, times, between=ask)
        child.stdin.close()
    return bare[1:], placed


def _rate(placement: Placement, slots: int) -> float:
    """Tasks of one second that are done in a second, with as many at once as there are slots."""

    async def main() -> float:
        async def several() -> None:
            for _ in range(10):
                await carry_out(placement, _work("sleep", 1.0))

        await asyncio.gather(*(carry_out(placement, _work("sleep", 0.1)) for _ in range(slots)))
        began = time.perf_counter()
        await asyncio.gather(*(several() for _ in range(slots)))
        return 10 * slots / (time.perf_counter() - began)

    return asyncio.run(main())


def _row(shown: str, runs: list[list[float]], base: list[list[float]] | None, unit: float = 1.0) -> list[str]:
    middle = Spread.of([percentile(each, 0.5) for each in runs])
    late = Spread.of([percentile(each, 0.95) for each in runs])
    known = 0.0 if base is None else unit * Spread.of([percentile(each, 0.5) for each in base]).median
    return [shown, middle.show(2), late.show(2), ratio(middle.median, known)]


def _takeover(stage: Stage, number: int) -> float:
    """Seconds from the kill of a worker, whose home is deleted, to the next trial of one that shares only PostgreSQL
    and the store. With the usual settings, which wait for ten seconds without a sign of life."""
    os.environ.update(KEYS)
    store = start_s3()
    try:
        url, bucket = stage.postgres.create_database(), store.new_bucket()
        homes = [stage.new_directory(f"home-{number}-{each}") for each in ("first", "second")]
        flags = {"artifacts.url": bucket, **_USUAL}
        loaded = load(homes[1], url, **flags)
        task = write_hill(homes[0] / "hill")
        with open_ledger(loaded) as ledger:
            wanted = ResearchRequest(task=str(task), engine="search", trials=100_000)
            run_id = start_research(open_runtime(loaded, ledger), wanted)
            workers = [_worker(homes[0], url, flags)]
            try:
                _await_trials(ledger, run_id, 5)
                # It waits for work, as a fleet does.
                workers.append(_worker(homes[1], url, flags))
                workers[0].kill()
                workers[0].wait()
                began, made = time.monotonic(), _trials(ledger, run_id)
                shutil.rmtree(homes[0])
                _await_trials(ledger, run_id, made + 1)
                return time.monotonic() - began
            finally:
                for each in workers:
                    each.kill()
                    each.wait()
    finally:
        store.close()


def _worker(home: Path, url: str, flags: dict[str, object]) -> subprocess.Popen[str]:
    """On a host of its own by name: one of the same host would see at once that the other process is gone."""
    pairs = [f"{key}={value}" for key, value in flags.items()]
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--uts",
        "sh",
        "-c",
        f'hostname {home.name} && exec "$@"',
        "sh",
    ]
    command += [sys.executable, "-m", "tests.runtime.worker_process", str(home), url, *pairs]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _trials(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return get_standing(tx, run_id).trials


def _await_trials(ledger: Ledger, run_id: int, least: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _trials(ledger, run_id) < least:
        assert time.monotonic() < deadline, "the run makes no trials"
        time.sleep(0.05)
