"""The storm: workers are killed at random, hundreds of times, under thousands of jobs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.runtime import JobStatus, Runtime, count_jobs, list_jobs
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually

KILLS = 200
JOBS_PER_KILL = 10
WORKERS = 3
KEYS = 5


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_hundred_kills_over_two_thousand_jobs_lose_nothing_and_finish_each_job_once(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    chance = random.Random(20_000)
    file = tmp_path / "marks"
    workers = [fleet.add() for _ in range(WORKERS)]
    keyed: dict[int, str] = {}
    for _ in range(KILLS):
        with ledger.write() as tx:
            for _ in range(JOBS_PER_KILL):
                key = f"key-{chance.randrange(KEYS)}" if chance.random() < 0.2 else None
                payload = {"file": str(file), "seconds": chance.random() * 0.02}
                job_id = runtime.enqueue(tx, "spell", payload, key=key, max_attempts=1)
                if key is not None and job_id is not None:
                    keyed[job_id] = key
        time.sleep(chance.random() * 0.1)
        victim = workers.pop(chance.randrange(WORKERS))
        fleet.kill(victim)
        workers.append(fleet.add())
    total = KILLS * JOBS_PER_KILL
    eventually(lambda: _counts(ledger)["finished"] == total)
    counts = _counts(ledger)
    assert {status: number for status, number in counts.items() if number} == {"finished": total}
    with ledger.read() as tx:
        assert len(list_jobs(tx, status=JobStatus.FINISHED, limit=total + 1)) == total
    _no_overlaps(marks(file), keyed)


def _counts(ledger: Ledger) -> dict[str, int]:
    with ledger.read() as tx:
        return count_jobs(tx)["default"]


def _no_overlaps(lines: list[str], keyed: dict[int, str]) -> None:
    """No job of a key began while another process was in the middle of one, unless that process was dead by then."""
    last_word: dict[str, int] = {}
    for number, line in enumerate(lines):
        last_word[line.split(":")[2]] = number
    running: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(lines):
        word, job, process = line.split(":")
        key = keyed.get(int(job))
        if key is None:
            continue
        if word == "end":
            running.pop(key, None)
            continue
        if key in running:
            other_job, other = running[key]
            assert last_word[other] < number, (
                f"{key}: job {job} began on {process} while {other} did {other_job}"
            )
        running[key] = (job, process)
