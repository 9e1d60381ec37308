"""Runs on three nodes of real Ray that are killed at random, on PostgreSQL with a store.

In the middle the worker is killed and its home deleted: one in a home that never saw the run takes it over. What is
recorded is recorded once.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import Runtime, open_ledger, open_runtime
from tests.placement.test_ray import ROOT, RayCluster, python  # noqa: F401 - a fixture
from tests.research.hill import write_hill
from tests.research.test_placed_runs import made, status
from tests.runtime.conftest import nursery  # noqa: F401 - a fixture
from tests.runtime.machines import AddMachine, Machine, add_machine  # noqa: F401 - a fixture
from tests.waiting import eventually
from tests.workflows.running.settled import start
from tests.workflows.running.test_placed import calls, fan

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
TRIALS, STEPS = 200, 500


def start_hill(runtime: Runtime, place: Path) -> int:
    task = write_hill(place / "hill")
    run_id = start_research(
        runtime, ResearchRequest(task=str(task), engine="search", trials=TRIALS, parallel=6)
    )
    shutil.rmtree(task)
    return run_id


def start_fan(runtime: Runtime, _place: Path) -> int:
    return start(runtime, fan(STEPS), cached=False)


def steps_done(ledger: Ledger, run_id: int) -> int:
    return len(calls(ledger, run_id))


def check_trials(ledger: Ledger, run_id: int) -> None:
    with ledger.read() as tx:
        standing, rows = get_standing(tx, run_id), latest_trials(tx, run_id, limit=1000)
        assert in_flight(tx, run_id) == []
    assert standing.trials == TRIALS
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    assert {row.status for row in rows} <= {TrialStatus.BASELINE, TrialStatus.KEEP, TrialStatus.DISCARD}


def check_steps(ledger: Ledger, run_id: int) -> None:
    recorded = calls(ledger, run_id)
    assert (len(recorded), set(recorded.values())) == (STEPS + 1, {1})


@pytest.mark.parametrize(
    ("begin", "done", "most", "check"),
    [
        pytest.param(start_hill, made, TRIALS, check_trials, id="trials"),
        pytest.param(start_fan, steps_done, STEPS, check_steps, id="steps"),
    ],
)
def test_a_run_on_nodes_that_are_killed_at_random_is_recorded_exactly_once(
    begin: Callable[[Runtime, Path], int],
    done: Callable[[Ledger, int], int],
    most: int,
    check: Callable[[Ledger, int], None],
    python: str,  # noqa: F811
    add_machine: AddMachine,  # noqa: F811
    tmp_path: Path,
) -> None:
    chance = random.Random(24)
    first, second = add_machine("first"), add_machine("second")
    cluster = RayCluster(python, 3)
    for each in (first, second):
        each.set(
            **{
                "placement.kind": "ray",
                "placement.address": cluster.address,
                "placement.cache": str(tmp_path / "cache"),
            }
        )
    living = [0, 1, 2]
    workers: list[subprocess.Popen[bytes]] = []
    with open_ledger(first.loaded) as ledger:
        try:
            run_id = begin(open_runtime(first.loaded, ledger), tmp_path)
            workers.append(work(python, first))
            for number, share in enumerate((0.1, 0.35, 0.6), 3):
                reach(lambda: done(ledger, run_id), round(share * most))
                assert not status(ledger, run_id).final
                killed = chance.choice(living)
                cluster.do(f"kill {killed}")
                if number == 4:
                    workers[0].kill()
                    workers[0].wait()
                    shutil.rmtree(first.home)
                    workers.append(work(python, second))
                cluster.do("add")
                living.remove(killed)
                living.append(number)
            reach(lambda: most if status(ledger, run_id).final else done(ledger, run_id) - 1, most)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            cluster.close()
        with ledger.read() as tx:
            run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        check(ledger, run_id)


def reach(count: Callable[[], int], least: int) -> None:
    """Wait until `count` is so high; each single step of it may take as long as anything may take in a test."""
    while (seen := count()) < least:
        eventually(lambda seen=seen: count() > seen)


def work(python: str, machine: Machine) -> subprocess.Popen[bytes]:  # noqa: F811
    with Path(f"{machine.home}.log").open("a") as log:
        return subprocess.Popen(
            [python, "-m", "tests.runtime.worker_process", str(machine.home), machine.url, *machine.flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
