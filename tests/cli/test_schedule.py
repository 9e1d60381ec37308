from __future__ import annotations

from ratchet.ledger import Ledger
from tests.cli.conftest import Ratchet

NIGHTLY = ("schedule", "add", "nightly", "30 2 * * *", "demo.primes")


def test_no_schedules_say_what_to_do_next(ratchet: Ratchet, ledger: Ledger) -> None:
    assert "ratchet schedule add" in ratchet("schedule", "list").err
    assert ratchet("schedule", "list", "--json").json == []


def test_a_schedule_is_added_listed_and_replaced(ratchet: Ratchet, ledger: Ledger) -> None:
    added = ratchet(
        *NIGHTLY, "--payload", '{"depth": 3}', "--timezone", "Europe/Berlin", "--key", "k", "--json"
    )
    assert added.code == 0, added.err
    [listed] = ratchet("schedule", "list", "--json").json
    assert listed == added.json
    assert (listed["cron"], listed["payload"], listed["timezone"]) == (
        "30 2 * * *",
        {"depth": 3},
        "Europe/Berlin",
    )
    assert listed["next_at"].endswith("30:00.000Z")
    assert "first at" in ratchet("schedule", "add", "nightly", "0 3 * * *", "demo.primes").out
    assert [each["cron"] for each in ratchet("schedule", "list", "--json").json] == ["0 3 * * *"]


def test_a_schedule_is_paused_resumed_and_removed(ratchet: Ratchet, ledger: Ledger) -> None:
    ratchet(*NIGHTLY)
    paused = ratchet("schedule", "pause", "nightly", "--json").json
    assert (paused["paused"], paused["next_at"]) == (True, None)
    assert "paused" in ratchet("schedule", "list").out
    assert ratchet("schedule", "resume", "nightly", "--json").json["paused"] is False
    assert ratchet("schedule", "remove", "nightly", "--json").json == {"name": "nightly", "removed": True}
    assert ratchet("schedule", "list", "--json").json == []


def test_a_schedule_that_does_not_exist_is_a_failure(ratchet: Ratchet, ledger: Ledger) -> None:
    for verb in ("pause", "resume", "remove"):
        done = ratchet("schedule", verb, "weekly")
        assert (done.code, done.err) == (1, "error: schedule weekly does not exist\n")


def test_a_schedule_that_cannot_be_meant_is_misuse(ratchet: Ratchet, ledger: Ledger) -> None:
    for arguments, told in (
        (["nightly", "every night", "demo.primes"], "is not a cron expression"),
        (["nightly", "0 0 30 2 *", "demo.primes"], "never happens"),
        (["Nightly!", "0 0 * * *", "demo.primes"], "cannot name a schedule"),
        (["nightly", "0 0 * * *", "demo.prime"], "did you mean 'demo.primes'?"),
        (["nightly", "0 0 * * *", "demo.primes", "--timezone", "Mars/Base"], "no time zone 'Mars/Base'"),
        (["nightly", "0 0 * * *", "demo.primes", "--queue", "gpu"], "no queue 'gpu'"),
        (["nightly", "0 0 * * *", "demo.primes", "--payload", "{"], "--payload is not JSON"),
        (["nightly", "0 0 * * *"], "missing argument 'KIND'"),
    ):
        done = ratchet("schedule", "add", *arguments)
        assert done.code == 2, arguments
        assert told in done.err
    assert ratchet("schedule", "list", "--json").json == []
