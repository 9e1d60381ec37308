"""A run whose worker is killed again and again makes exactly the trials asked for, and loses none."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.trial_pages import in_flight, latest_trials, tallies
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import Runtime
from tests.runtime.fleet import Fleet
from tests.waiting import eventually

TRIALS = 50


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_run_that_is_killed_at_random_ends_with_exactly_the_trials_asked_for(
    seed: int, runtime: Runtime, ledger: Ledger, fleet: Fleet, hill: Path, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    run_id = start_research(runtime, ResearchRequest(task=str(hill), engine="search", trials=TRIALS))
    worker = fleet.add()
    for number in range(4):
        eventually(lambda least=number * 8: made(ledger, run_id) > least)
        time.sleep(chance.uniform(0, 0.2))
        fleet.kill(worker)
        worker = fleet.add()
    eventually(lambda: status(ledger, run_id).final)
    assert status(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        standing = get_standing(tx, run_id)
        rows = latest_trials(tx, run_id, limit=1000)
        assert in_flight(tx, run_id) == []
        counted = tallies(tx, run_id)
        for step in list_steps(tx, run_id):
            assert all(attempt.ended_at for attempt in list_attempts(tx, step.id))
    assert standing.trials == TRIALS
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    assert sum(sum(each.values()) for each in counted.values()) == TRIALS + 1
    kept = [row for row in rows if row.status in (TrialStatus.KEEP, TrialStatus.BASELINE)]
    best = max(kept, key=lambda row: row.score or 0)
    assert (standing.best, standing.best_commit) == (best.number, best.commit)
    repository = tmp_path / "research" / str(run_id) / "repo.git"
    assert git(repository, "rev-parse", "refs/heads/best") == best.commit
    for row in rows:
        assert git(repository, "rev-parse", f"refs/trials/{row.exp_id}") == row.commit
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""


def made(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return get_standing(tx, run_id).trials


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
