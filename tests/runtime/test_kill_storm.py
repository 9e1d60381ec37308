"""The storm: workers are killed at random, hundreds of times, under thousands of jobs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.runtime import JobStatus, Runtime, count_jobs, list_jobs, open_runtime
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import make_kinds, marks
from tests.runtime.worker_process import load
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


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kills_over_delayed_jobs_of_a_limited_queue_lose_nothing_and_leave_its_limits_in_force(
    fleet: Fleet, ledger: Ledger, tmp_path: Path, url: str
) -> None:
    limits = "[queues.narrow]\nconcurrency = 3\nrate_limit = 40\nrate_seconds = 0.5\n"
    (tmp_path / "ratchet.toml").write_text(limits)
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    chance = random.Random(40)
    file = tmp_path / "marks"
    workers = [fleet.add() for _ in range(WORKERS)]
    kills = 30
    for _ in range(kills):
        with ledger.write() as tx:
            for _ in range(JOBS_PER_KILL):
                key = f"key-{chance.randrange(KEYS)}" if chance.random() < 0.2 else None
                payload = {"file": str(file), "seconds": chance.random() * 0.02}
                delay = chance.choice([0, 0.01, 0.1])
                runtime.enqueue(tx, "spell", payload, queue="narrow", key=key, delay_seconds=delay)
        time.sleep(chance.random() * 0.1)
        fleet.kill(workers.pop(chance.randrange(WORKERS)))
        workers.append(fleet.add())
    total = kills * JOBS_PER_KILL
    eventually(lambda: _counts(ledger, "narrow")["finished"] == total)
    assert {status: number for status, number in _counts(ledger, "narrow").items() if number} == {
        "finished": total
    }
    assert _most_at_once(marks(file)) <= 3


def _most_at_once(lines: list[str]) -> int:
    """How many jobs ran at the same moment, without those of processes that were dead by then."""
    last_word = {line.split(":")[2]: number for number, line in enumerate(lines)}
    running: set[tuple[str, str]] = set()
    most = 0
    for number, line in enumerate(lines):
        word, job, process = line.split(":")
        running = {each for each in running if last_word[each[1]] >= number}
        if word == "start":
            running.add((job, process))
        else:
            running.discard((job, process))
        most = max(most, len(running))
    return most


def _counts(ledger: Ledger, queue: str = "default") -> dict[str, int]:
    with ledger.read() as tx:
        return count_jobs(tx)[queue]


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
