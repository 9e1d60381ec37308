"""A research run on real Ray, whose nodes are killed while it measures."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import Runtime
from tests.placement.test_ray import ROOT, RayCluster, python  # noqa: F401 - a fixture
from tests.research.test_placed_runs import made, status
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
TRIALS = 200


def test_a_run_on_three_nodes_that_are_killed_at_random_makes_exactly_its_trials(
    python: str,  # noqa: F811
    runtime: Runtime,
    ledger: Ledger,
    url: str,
    hill: Path,
    tmp_path: Path,
) -> None:
    chance = random.Random(24)
    run_id = start_research(
        runtime, ResearchRequest(task=str(hill), engine="search", trials=TRIALS, parallel=6)
    )
    cluster = RayCluster(python, 3)
    flags = [
        "placement.kind=ray",
        f"placement.address={cluster.address}",
        f"placement.cache={tmp_path / 'cache'}",
    ]
    with (tmp_path / "worker.log").open("a") as log:
        worker = subprocess.Popen(
            [python, "-m", "tests.runtime.worker_process", str(tmp_path), url, *flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    living = [0, 1, 2]
    try:
        for number, least in enumerate((20, 70, 120), 3):
            eventually(lambda least=least: made(ledger, run_id) > least or status(ledger, run_id).final)
            killed = chance.choice(living)
            cluster.do(f"kill {killed}")
            cluster.do("add")
            living.remove(killed)
            living.append(number)
        eventually(lambda: status(ledger, run_id).final)
    finally:
        worker.kill()
        worker.wait()
        cluster.close()
    with ledger.read() as tx:
        run, standing = get_run(tx, run_id), get_standing(tx, run_id)
        rows = latest_trials(tx, run_id, limit=1000)
        assert in_flight(tx, run_id) == []
    assert run.status is RunStatus.COMPLETED, run.reason
    assert standing.trials == TRIALS
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    assert {row.status for row in rows} <= {TrialStatus.BASELINE, TrialStatus.KEEP, TrialStatus.DISCARD}
