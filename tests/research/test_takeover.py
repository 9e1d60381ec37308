"""A run is taken over by a machine that shares its database and its artifact store, and no disk."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.artifacts import PACK, latest, of_run
from ratchet.ledger.research import get_standing
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.loop import JUDGED, KEPT
from ratchet.research.start import ResearchRequest, start_research
from ratchet.runtime import open_ledger, open_runtime
from tests.research.hill import TASK
from tests.research.test_killed import git, status
from tests.runtime.machines import AddMachine, Machine
from tests.waiting import eventually

TRIALS = 30


def start(machine: Machine, task: Path) -> int:
    with open_ledger(machine.loaded) as ledger:
        runtime = open_runtime(machine.loaded, ledger)
        return start_research(runtime, ResearchRequest(task=str(task), engine="search", trials=TRIALS))


@pytest.mark.parametrize("stage", [KEPT, pytest.param(JUDGED, marks=pytest.mark.soak)])
def test_a_run_continues_where_its_first_home_was_never_seen(
    stage: str, add_machine: AddMachine, hill: Path
) -> None:
    first, second = add_machine("first"), add_machine("second")
    run_id = start(first, hill)
    first.work_until(stage)
    shutil.rmtree(first.home)
    shutil.rmtree(hill)
    second.work()
    with open_ledger(second.loaded) as ledger:
        eventually(lambda: status(ledger, run_id).final)
        check(ledger, run_id, second.home)


@pytest.mark.soak
def test_a_home_that_had_the_run_before_learns_what_was_made_elsewhere(
    add_machine: AddMachine, hill: Path
) -> None:
    first, second = add_machine("first"), add_machine("second")
    run_id = start(first, hill)
    for machine in (first, second):
        machine.work_until(KEPT)
    first.work()
    with open_ledger(first.loaded) as ledger:
        eventually(lambda: status(ledger, run_id).final)
        check(ledger, run_id, first.home)


@pytest.mark.soak
def test_a_commit_travels_as_what_it_changed(add_machine: AddMachine, hill: Path) -> None:
    (hill / "big.txt").write_bytes(random.Random(1).randbytes(500_000))
    (hill / "task.toml").write_text(TASK.replace('["recipe.py"]', '["recipe.py", "big.txt"]'))
    machine = add_machine("only")
    run_id = start(machine, hill)
    machine.work()
    with open_ledger(machine.loaded) as ledger:
        eventually(lambda: status(ledger, run_id).final)
        with ledger.read() as tx:
            packs = [each for each in of_run(tx, run_id) if each.media_type == PACK]
            listed = latest(tx, run_id=run_id, limit=1000)
    first, *others = packs
    assert len(others) == TRIALS
    assert first.size > 500_000
    assert max(each.size for each in others) < 5_000
    assert not {each.id for each in packs} & {each.id for each in listed}


def check(ledger: Ledger, run_id: int, home: Path) -> None:
    """All trials were made once, and the home has the repository with all of them."""
    assert status(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        standing = get_standing(tx, run_id)
        rows = latest_trials(tx, run_id, limit=1000)
        assert in_flight(tx, run_id) == []
    assert standing.trials == TRIALS
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    kept = [row for row in rows if row.status in (TrialStatus.KEEP, TrialStatus.BASELINE)]
    best = max(kept, key=lambda row: row.score or 0)
    assert (standing.best, standing.best_commit) == (best.number, best.commit)
    repository = home / "research" / str(run_id) / "repo.git"
    assert git(repository, "rev-parse", "refs/heads/best") == best.commit
    for row in rows:
        assert git(repository, "rev-parse", f"refs/trials/{row.exp_id}") == row.commit
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""
