from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.runtime import Runtime
from tests.cli.conftest import Ratchet


def enqueue(runtime: Runtime, kind: str = "test.slow", **options: Any) -> int:
    with runtime.ledger.write() as tx:
        number = runtime.enqueue(tx, kind, {"seconds": 0}, **options)
    assert number is not None
    return number


def test_queues_are_listed_with_their_counts(ratchet: Ratchet, runtime: Runtime) -> None:
    enqueue(runtime)
    enqueue(runtime, delay_seconds=60)
    [queue] = ratchet("queue", "list", "--json").json
    assert (queue["name"], queue["paused"]) == ("default", False)
    assert queue["counts"] == {
        "queued": 1,
        "scheduled": 1,
        "waiting": 0,
        "started": 0,
        "finished": 0,
        "failed": 0,
        "cancelled": 0,
    }
    header, row = ratchet("queue", "list").out.splitlines()
    told = dict(zip(header.split(), row.split(), strict=True))
    assert (told["state"], told["queued"]) == ("active", "1")


def test_configured_queues_are_listed_with_their_limits(
    ratchet: Ratchet, runtime: Runtime, home: Path
) -> None:
    (home / "ratchet.toml").parent.mkdir(exist_ok=True)
    (home / "ratchet.toml").write_text("[queues.gpu]\nconcurrency = 2\nrate_limit = 10\nrate_seconds = 60\n")
    assert "2 at once, 10 in 60 s" in ratchet("queue", "list").out
    assert [each["concurrency"] for each in ratchet("queue", "list", "--json").json] == [None, 2]


def test_jobs_are_listed_newest_first_a_page_at_a_time(ratchet: Ratchet, runtime: Runtime) -> None:
    numbers = [enqueue(runtime) for _ in range(5)]
    page = ratchet("queue", "jobs", "--json", "--limit", "2").json
    assert [each["id"] for each in page] == numbers[:2:-1]
    following = ratchet("queue", "jobs", "--json", "--limit", "2", "--before", str(page[-1]["id"])).json
    assert [each["id"] for each in following] == numbers[2:0:-1]


def test_jobs_are_chosen_by_status_and_queue(ratchet: Ratchet, runtime: Runtime) -> None:
    enqueue(runtime)
    later = enqueue(runtime, delay_seconds=60)
    assert [each["id"] for each in ratchet("queue", "jobs", "--status", "scheduled", "--json").json] == [
        later
    ]
    assert ratchet("queue", "jobs", "--queue", "gpu", "--json").json == []
    assert ratchet("queue", "jobs", "--status", "lost").code == 2


def test_no_jobs_say_so_beside_the_output(ratchet: Ratchet, runtime: Runtime) -> None:
    done = ratchet("queue", "jobs")
    assert (done.code, done.out) == (0, "")
    assert "No such jobs" in done.err


def test_a_job_is_shown_with_its_payload(ratchet: Ratchet, runtime: Runtime) -> None:
    number = enqueue(runtime, key="repo:1", priority=2)
    job = ratchet("queue", "show", str(number), "--json").json
    assert (job["kind"], job["key"], job["priority"], job["payload"]) == (
        "test.slow",
        "repo:1",
        2,
        {"seconds": 0},
    )
    assert job["created_at"].endswith("Z")
    assert "repo:1" in ratchet("queue", "show", str(number)).out


def test_a_job_that_does_not_exist_is_a_failure(ratchet: Ratchet, runtime: Runtime) -> None:
    done = ratchet("queue", "show", "77")
    assert (done.code, done.err.splitlines()[0]) == (1, "error: job 77 does not exist")


def test_cancel_ends_a_job_that_waits_and_refuses_one_that_ended(ratchet: Ratchet, runtime: Runtime) -> None:
    number = enqueue(runtime)
    done = ratchet("queue", "cancel", str(number), "--reason", "not needed")
    assert (done.code, done.out) == (0, f"Job {number} is cancelled.\n")
    job = ratchet("queue", "show", str(number), "--json").json
    assert (job["status"], job["error"]) == ("cancelled", "not needed")
    again = ratchet("queue", "cancel", str(number), "--json")
    assert again.code == 1
    assert "only an unfinished job can be stopped" in again.err


def test_a_queue_is_paused_and_resumed(ratchet: Ratchet, runtime: Runtime) -> None:
    paused = ratchet("queue", "pause", "default", "--json").json
    assert (paused["name"], paused["paused"]) == ("default", True)
    assert ratchet("queue", "list", "--json").json[0]["paused"] is True
    assert ratchet("queue", "resume", "default").out == "Queue default is resumed.\n"
    assert ratchet("queue", "list", "--json").json[0]["paused"] is False


def test_pausing_a_queue_that_does_not_exist_is_misuse(ratchet: Ratchet, runtime: Runtime) -> None:
    done = ratchet("queue", "pause", "gpu")
    assert done.code == 2
    assert "there are: default" in done.err
    assert "[queues.gpu]" in done.err
