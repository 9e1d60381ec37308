"""Jobs from end to end, done by a worker in this process."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import Conflict, Misuse
from ratchet.ledger import EventFilter, Ledger, events
from ratchet.ledger.bucket import Bucket
from ratchet.ledger.tables import jobs
from ratchet.runtime import JobContext, JobStatus, Kinds, Runtime, Worker, count_jobs, list_jobs, open_runtime
from tests.runtime.conftest import ended, look, pause, status_of
from tests.runtime.kinds import marks
from tests.runtime.worker_process import load
from tests.s3 import S3Server, troubled
from tests.waiting import eventually


def test_a_job_is_done_and_its_result_is_kept(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks"), "value": {"deep": [1, None]}})
    job = ended(ledger, job_id)
    assert (job.status, job.result, job.attempt) == (JobStatus.FINISHED, {"deep": [1, None]}, 1)


@pytest.mark.soak
def test_a_job_whose_claim_its_worker_never_heard_of_is_queued_again(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    """The connection broke when the database had the claim, and before it could say so."""
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks"), "value": 1})
        assert [job.id for job in runtime.jobs.claim(tx, worker.process_id, 1)] == [job_id]
    job = ended(ledger, job_id)
    assert (job.status, job.attempt, job.delivery) == (JobStatus.FINISHED, 1, 2)


def test_a_job_of_a_rolled_back_transaction_does_not_exist(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with contextlib.suppress(ZeroDivisionError), ledger.write() as tx:
        runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")})
        raise ZeroDivisionError
    time.sleep(0.3)
    with ledger.read() as tx:
        assert list_jobs(tx) == []
    assert marks(tmp_path / "marks") == []


@pytest.mark.soak
def test_a_failing_job_is_tried_three_times_and_every_error_is_visible(
    ledger: Ledger, runtime: Runtime, worker: Worker
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "flaky", {"failures": 99})
    job = ended(ledger, job_id)
    assert (job.status, job.attempt) == (JobStatus.FAILED, 3)
    assert job.error is not None
    assert "try 3 fails" in job.error
    with ledger.read() as tx:
        told = events.since(tx.connection, where=EventFilter(job_id=job_id))
    assert [event.type for event in told] == ["job.retrying", "job.retrying", "job.failed"]
    assert [(event.message or "").splitlines()[0] for event in told] == [
        f"ValueError: try {number} fails" for number in (1, 2, 3)
    ]
    assert [event.data.get("retry_in_seconds") for event in told] == [0.1, 0.2, None]


@pytest.mark.parametrize("explained", [False, True])
@pytest.mark.parametrize(
    "lacking", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.EDQUOT], ids=errno.errorcode.get
)
def test_a_job_that_finds_no_room_on_its_machine_is_put_off_and_never_fails(
    ledger: Ledger, runtime: Runtime, worker: Worker, lacking: int, explained: bool
) -> None:
    with ledger.write() as tx:
        given = {"failures": 2, "errno": lacking, "explained": explained}
        job_id = runtime.enqueue(tx, "starved", given, max_attempts=1)
    job = ended(ledger, job_id)
    assert (job.status, job.attempt, job.result) == (JobStatus.FINISHED, 1, 1)
    with ledger.read() as tx:
        told = events.since(tx.connection, where=EventFilter(job_id=job_id))
    assert [(event.type, event.data["retry_in_seconds"]) for event in told] == [
        ("job.retrying", 0.1),
        ("job.retrying", 0.2),
    ]
    assert all((event.message or "").startswith("out of ") for event in told)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_job_that_finds_the_artifact_store_broken_is_put_off_and_never_fails(
    s3: S3Server, url: str, tmp_path: Path
) -> None:
    fixed = threading.Event()

    def fail(_method: str, content: bytes) -> tuple[int, bytes]:
        return (200, content) if fixed.is_set() else (500, b"")

    def store(job: JobContext) -> str:
        with job.write() as tx:
            return job.ledger.artifacts.put(tx, bytes(100_000), name="zeros").sha256

    kinds = Kinds()
    kinds.add("store", store)
    with troubled(s3.new_bucket(), fail) as address:
        bucket = Bucket(address, patience_seconds=0.3)
        with Ledger(url, tmp_path / "artifacts", bucket) as ledger:
            runtime = open_runtime(load(tmp_path, url), ledger, kinds)
            worker = Worker(runtime)
            worker.start()
            try:
                with ledger.write() as tx:
                    job_id = runtime.enqueue(tx, "store", max_attempts=1)
                eventually(lambda: reasons(ledger, job_id))
                fixed.set()
                done = ended(ledger, job_id)
            finally:
                worker.stop(drain_seconds=0)
            assert (done.status, done.attempt) == (JobStatus.FINISHED, 1)
            assert all("artifact store s3://" in each for each in reasons(ledger, job_id))
            assert list(ledger.artifacts.hashes()) == [done.result]


def reasons(ledger: Ledger, job_id: int | None) -> list[str]:
    """Why a job was put off."""
    with ledger.read() as tx:
        told = events.since(tx.connection, where=EventFilter(job_id=job_id))
    return [event.message or "" for event in told if event.type == "job.retrying"]


def test_a_job_that_finds_the_database_away_is_put_off_and_never_fails(
    ledger: Ledger, runtime: Runtime, worker: Worker
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "starved", {"failures": 2, "errno": 0}, max_attempts=1)
    job = ended(ledger, job_id)
    assert (job.status, job.attempt, job.result) == (JobStatus.FINISHED, 1, 1)


@pytest.mark.soak
def test_a_job_that_fails_once_succeeds_at_the_second_try(
    ledger: Ledger, runtime: Runtime, worker: Worker
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "flaky", {"failures": 1})
    job = ended(ledger, job_id)
    assert (job.status, job.result) == (JobStatus.FINISHED, 2)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unstorable", "cannot be stored"),
        ("not_a_number", "cannot be stored"),
        ("huge", "too large to store"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_the_job_at_once(
    ledger: Ledger, runtime: Runtime, worker: Worker, kind: str, words: str
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, kind)
    job = ended(ledger, job_id)
    assert (job.status, job.attempt) == (JobStatus.FAILED, 1)
    assert words in (job.error or "")


def test_a_handler_that_calls_exit_fails_only_its_own_job(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        leaving = runtime.enqueue(tx, "leaving", max_attempts=1)
        spell = runtime.enqueue(tx, "spell", {"file": str(tmp_path / "marks"), "seconds": 0.3})
    assert "SystemExit" in (ended(ledger, leaving).error or "")
    assert ended(ledger, spell).status is JobStatus.FINISHED


@pytest.mark.parametrize("kind", ["spell", "plain_spell", "deaf"])
def test_a_job_that_hangs_is_stopped_at_its_timeout(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path, kind: str
) -> None:
    with ledger.write() as tx:
        payload = {"file": str(tmp_path / "marks"), "seconds": 11}
        job_id = runtime.enqueue(tx, kind, payload, timeout_seconds=0.3, max_attempts=1)
    job = ended(ledger, job_id, 15)
    assert job.status is JobStatus.FAILED
    assert "longer than 0.3 s" in (job.error or "")


@pytest.mark.soak
def test_a_delayed_job_waits(ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path) -> None:
    with ledger.write() as tx:
        asked = tx.now / 1000
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")}, delay_seconds=1.0)
    assert status_of(ledger, job_id) is JobStatus.SCHEDULED
    ended(ledger, job_id)
    assert float(marks(tmp_path / "marks")[0].split(":")[1]) - asked >= 1.0


def test_a_delay_in_the_past_means_now(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")}, delay_seconds=-3600)
    assert ended(ledger, job_id).status is JobStatus.FINISHED


def test_once_means_once(ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path) -> None:
    payload = {"file": str(tmp_path / "marks")}
    with ledger.write() as tx:
        first = runtime.enqueue(tx, "note", payload, once="nightly")
    with ledger.write() as tx:
        assert runtime.enqueue(tx, "note", payload, once="nightly") is None
    ended(ledger, first)
    with ledger.write() as tx:
        assert runtime.enqueue(tx, "note", payload, once="nightly") is None
    assert len(marks(tmp_path / "marks")) == 1


def test_urgent_jobs_start_first_and_equal_ones_in_order(
    ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    """Enqueued before any worker lives, so all wait in the queue; one slot shows the order."""
    with ledger.write() as tx:
        ids = [
            runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")}, priority=priority)
            for priority in (9, 5, 5, 0, 5, 9, 0)
        ]
    lone = Worker(runtime, slots=1)
    lone.start()
    try:
        eventually(lambda: len(marks(tmp_path / "marks")) == len(ids))
    finally:
        lone.stop(drain_seconds=5)
    order = [int(line.split(":")[0]) for line in marks(tmp_path / "marks")]
    assert order == [ids[3], ids[6], ids[1], ids[2], ids[4], ids[0], ids[5]]


@pytest.mark.parametrize("kind", ["spell", "plain_spell"])
def test_cancelling_reaches_the_running_work(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path, kind: str
) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, kind, {"file": str(tmp_path / "marks"), "seconds": 60})
    eventually(lambda: len(marks(tmp_path / "marks")) == 1)
    assert job_id is not None
    with ledger.write() as tx:
        assert runtime.jobs.request_stop(tx, job_id, "not needed") is JobStatus.STARTED
    job = ended(ledger, job_id, 5)
    assert (job.status, job.error) == (JobStatus.CANCELLED, "not needed")
    assert not any(line.startswith("end") for line in marks(tmp_path / "marks"))


def test_cancelling_a_waiting_job_takes_effect_at_once(ledger: Ledger, runtime: Runtime) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": "unused"}, delay_seconds=60)
    assert job_id is not None
    with ledger.write() as tx:
        runtime.jobs.request_stop(tx, job_id, "changed my mind")
    assert status_of(ledger, job_id) is JobStatus.CANCELLED
    with pytest.raises(Conflict, match="is cancelled"), ledger.write() as tx:
        runtime.jobs.request_stop(tx, job_id, "again")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "nite"}, "did you mean 'note'"),
        ({"kind": "note", "queue": "fast"}, "no queue 'fast'"),
        ({"kind": "note", "priority": 10}, "priority 10"),
        ({"kind": "note", "delay_seconds": float("inf")}, "inf seconds"),
        ({"kind": "note", "max_attempts": 0}, "never try"),
        ({"kind": "note", "payload": object()}, "cannot be stored"),
        ({"kind": "note", "payload": "x" * 2_000_000}, "too large"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(
    ledger: Ledger, runtime: Runtime, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(Misuse) as caught, ledger.write() as tx:
        runtime.enqueue(tx, **arguments)  # type: ignore[arg-type]
    assert words in f"{caught.value} {caught.value.hint}"


@pytest.mark.soak
def test_a_paused_queue_stands_still_and_goes_on(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    pause(runtime, "default")
    time.sleep(0.2)
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")})
    time.sleep(0.7)
    assert status_of(ledger, job_id) is JobStatus.QUEUED
    pause(runtime, "default", paused=False)
    assert ended(ledger, job_id).status is JobStatus.FINISHED


@pytest.mark.soak
def test_counts_tell_how_jobs_ended(ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path) -> None:
    with ledger.write() as tx:
        done = [runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")}) for _ in range(3)]
        failed = runtime.enqueue(tx, "unstorable")
        runtime.enqueue(tx, "note", {"file": "unused"}, delay_seconds=60)
    for job_id in (*done, failed):
        ended(ledger, job_id)
    with ledger.read() as tx:
        counts = count_jobs(tx)["default"]
    assert (counts["finished"], counts["failed"], counts["scheduled"], counts["queued"]) == (3, 1, 1, 0)


def test_jobs_of_one_key_never_overlap_and_keep_their_order(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    ids = []
    for _ in range(6):
        with ledger.write() as tx:
            ids.append(runtime.enqueue(tx, "spell", {"file": str(file), "seconds": 0.02}, key="one"))
    for job_id in ids:
        ended(ledger, job_id)
    told = [line.split(":")[:2] for line in marks(file)]
    assert [int(number) for word, number in told if word == "start"] == sorted(
        int(n) for w, n in told if w == "start"
    )
    assert all(first[1] == second[1] for first, second in zip(told[::2], told[1::2], strict=True))


def test_only_a_job_whose_key_nobody_has_or_wants_before_it_is_stranded(
    ledger: Ledger, runtime: Runtime
) -> None:
    with ledger.write() as tx:
        first, second = (runtime.enqueue(tx, "note", {"file": "unused"}, key="one") for _ in range(2))
        change = sa.update(jobs).where(jobs.c.id == sa.bindparam("number"))
        tx.connection.execute(change.values(status="waiting"), {"number": second})
        assert runtime.jobs.free_stranded(tx) == 0
        tx.connection.execute(change.values(status="finished"), {"number": first})
        assert runtime.jobs.free_stranded(tx) == 1
    assert status_of(ledger, second) is JobStatus.QUEUED


@pytest.mark.soak
def test_a_retry_lets_the_next_of_its_key_go_first(
    ledger: Ledger, runtime: Runtime, worker: Worker, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        failing = runtime.enqueue(tx, "flaky", {"failures": 2}, key="one")
        other = runtime.enqueue(tx, "note", {"file": str(tmp_path / "marks")}, key="one")
    first, second = ended(ledger, failing), ended(ledger, other)
    assert first.status is second.status is JobStatus.FINISHED
    assert (second.ended_at or 0) <= (first.ended_at or 0)


@pytest.mark.soak
def test_the_handler_cannot_write_after_its_job_was_stopped(
    ledger: Ledger, runtime: Runtime, worker: Worker
) -> None:
    from ratchet.kernel import Superseded
    from ratchet.runtime import JobContext

    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, "deaf", {"seconds": 1.0})
    eventually(lambda: status_of(ledger, job_id) is JobStatus.STARTED)
    context = JobContext(runtime, look(ledger, job_id), worker.process_id)
    with ledger.write() as tx:
        runtime.jobs.take_over(tx, worker.process_id)
    with pytest.raises(Superseded), context.write() as tx:
        tx.event("never.seen")
