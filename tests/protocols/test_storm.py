"""Workers killed at random while protocols are planned, carried out, judged and pushed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger.runs import list_attempts
from tests.protocols.world import World, git
from tests.runtime.fleet import Fleet

_PROTOCOLS = 5
_WORKERS = 2
# Deaths are what this is about: a job must not be given up for them.
_FLAGS = {"runtime__max_recoveries": 10_000, "runtime__slots": 4}


@pytest.mark.soak
@pytest.mark.parametrize(("url", "kills"), [("sqlite", 60), ("postgresql", 40)], indirect=["url"])
@pytest.mark.timeout(900)
def test_no_step_is_lost_and_nothing_is_pushed_twice_however_workers_die(
    world: World, fleet: Fleet, kills: int
) -> None:
    # Written with the update itself: a hook that runs after it would die with the one who pushes.
    git(world.remote, "config", "core.logAllRefUpdates", "true")
    world.plan("Write a.\nwrite a.txt bad\nfix a.txt good", "Write b.\nwrite b.txt two")
    runs = [world.start(f"{number:04d}-change") for number in range(1, _PROTOCOLS + 1)]
    chance = random.Random(os.urandom(8))
    workers = [fleet.add(**_FLAGS) for _ in range(_WORKERS)]
    killed = 0
    while killed < kills and not all(world.stands(run_id) for run_id in runs):
        time.sleep(chance.uniform(0.05, 0.6))
        fleet.kill(workers.pop(chance.randrange(len(workers))))
        workers.append(fleet.add(**_FLAGS))
        killed += 1
    deadline = time.monotonic() + 300
    while not all(world.stands(run_id) for run_id in runs):
        assert time.monotonic() < deadline, {run_id: world.statuses(run_id) for run_id in runs}
        time.sleep(0.2)
    for run_id in runs:
        assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
        for step in world.steps(run_id):
            assert step.status is StepStatus.COMPLETED
            with world.ledger.read() as tx:
                passed = [each for each in list_attempts(tx, step.step_id) if each.outcome is Outcome.PASSED]
            assert len(passed) == 1, f"{step.name} passed {len(passed)} times"
    world.git("fsck", "--strict")
    for number in range(1, _PROTOCOLS + 1):
        branch = f"{number:04d}-change"
        subjects = world.git("log", "--format=%s", f"main..{branch}").splitlines()
        assert len(subjects) == len(set(subjects)) == 4
        _each_update_went_on_from_the_last(world.remote / "logs" / "refs" / "heads" / branch)


def _each_update_went_on_from_the_last(updates: Path) -> None:
    last = "0" * 40
    for line in updates.read_text().splitlines():
        before, after, _ = line.split(maxsplit=2)
        assert before == last, f"{updates.name} was pushed twice"
        assert after != before
        last = after
    assert last != "0" * 40
