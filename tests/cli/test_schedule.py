from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ratchet.flowkit.writer import write_spec
from ratchet.ledger import Ledger
from tests.cli.conftest import Ratchet
from tests.workflows.running.tools import sums

NIGHTLY = ("schedule", "add", "nightly", "30 2 * * *", "demo.primes")


def test_no_schedules_say_what_to_do_next(ratchet: Ratchet, ledger: Ledger) -> None:
    assert "ratchet schedule add" in ratchet("schedule", "list").err
    assert ratchet("schedule", "list", "--json").json == []


def test_a_schedule_is_added_listed_shown_and_replaced(ratchet: Ratchet, ledger: Ledger) -> None:
    added = ratchet(
        *NIGHTLY, "--payload", '{"depth": 3}', "--timezone", "Europe/Berlin", "--key", "k", "--json"
    )
    assert added.code == 0, added.err
    [listed] = ratchet("schedule", "list", "--json").json
    assert listed == added.json == ratchet("schedule", "show", "nightly", "--json").json
    assert (listed["cron"], listed["payload"], listed["timezone"]) == (
        "30 2 * * *",
        {"depth": 3},
        "Europe/Berlin",
    )
    assert (listed["words"], listed["meaning"], listed["missed"]) == (None, "every day at 02:30", "once")
    assert listed["next_at"].endswith("30:00.000Z")
    assert listed["next"][0] == listed["next_at"]
    assert "every day at 03:00 (UTC)" in ratchet("schedule", "add", "nightly", "0 3 * * *", "demo.primes").out
    assert [each["cron"] for each in ratchet("schedule", "list", "--json").json] == ["0 3 * * *"]


def test_a_schedule_is_said_in_plain_english_and_what_was_understood_is_told(
    ratchet: Ratchet, ledger: Ledger
) -> None:
    arguments = ("every weekday at 9am", "demo.primes", "--timezone", "Europe/Berlin")
    added = ratchet("schedule", "add", "mornings", *arguments, "--missed", "skip", "--background")
    assert "every weekday at 09:00 (Europe/Berlin), cron 0 9 * * 1-5" in added.out
    assert added.out.count(" 09:00:00 ") == 3
    shown = ratchet("schedule", "show", "mornings", "--json").json
    assert (shown["words"], shown["cron"]) == ("every weekday at 9am", "0 9 * * 1-5")
    assert (shown["missed"], shown["priority"], shown["background"]) == ("skip", 9, True)
    assert "background" in ratchet("schedule", "list").out
    assert "every weekday at 9am" in ratchet("schedule", "show", "mornings").out


def test_the_next_times_are_told_of_a_schedule_and_of_any_time(ratchet: Ratchet, ledger: Ledger) -> None:
    ratchet(*NIGHTLY)
    known = ratchet("schedule", "next", "nightly", "-n", "5", "--json").json
    assert (known["cron"], len(known["next"])) == ("30 2 * * *", 5)
    said = ratchet("schedule", "next", "every quarter hour", "--timezone", "Asia/Tokyo", "--json").json
    assert (said["meaning"], said["timezone"], len(said["next"])) == ("every 15 minutes", "Asia/Tokyo", 3)
    assert ratchet("schedule", "next", "every 2 hours").out.startswith(
        "every 2 hours (UTC), cron 0 */2 * * *\n"
    )
    ratchet("schedule", "pause", "nightly")
    assert "no time is to come" in ratchet("schedule", "next", "nightly").out
    assert "its own time zone" in ratchet("schedule", "next", "nightly", "--timezone", "UTC").err


def test_asking_for_times_needs_no_ledger(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("schedule", "next", "hourly", "--home", str(tmp_path / "none")).code == 0
    assert not (tmp_path / "none").exists()


def test_a_schedule_is_paused_resumed_and_removed(ratchet: Ratchet, ledger: Ledger) -> None:
    ratchet(*NIGHTLY)
    paused = ratchet("schedule", "pause", "nightly", "--json").json
    assert (paused["paused"], paused["next_at"], paused["next"]) == (True, None, [])
    assert "paused" in ratchet("schedule", "list").out
    assert ratchet("schedule", "resume", "nightly", "--json").json["paused"] is False
    assert ratchet("schedule", "remove", "nightly", "--json").json == {"name": "nightly", "removed": True}
    assert ratchet("schedule", "list", "--json").json == []


def test_a_schedule_that_does_not_exist_is_a_failure(ratchet: Ratchet, ledger: Ledger) -> None:
    for verb in ("pause", "resume", "remove", "show"):
        done = ratchet("schedule", verb, "weekly")
        assert (done.code, done.err.splitlines()[0]) == (1, "error: schedule weekly does not exist")


def test_a_schedule_that_cannot_be_meant_is_misuse(ratchet: Ratchet, ledger: Ledger) -> None:
    for arguments, told in (
        (["nightly", "every night", "demo.primes"], "'night' is no exact time"),
        (["nightly", "every 7 minutes", "demo.primes"], "7 minutes do not divide an hour evenly"),
        (["nightly", "61 * * * *", "demo.primes"], "is not a cron expression"),
        (["nightly", "0 0 30 2 *", "demo.primes"], "never happens"),
        (["Nightly!", "0 0 * * *", "demo.primes"], "cannot name a schedule"),
        (["nightly", "0 0 * * *", "demo.prime"], "did you mean 'demo.primes'?"),
        (["nightly", "0 0 * * *", "demo.primes", "--timezone", "Mars/Base"], "no time zone 'Mars/Base'"),
        (["nightly", "0 0 * * *", "demo.primes", "--queue", "gpu"], "no queue 'gpu'"),
        (["nightly", "0 0 * * *", "demo.primes", "--payload", "{"], "--payload is not JSON"),
        (["nightly", "0 0 * * *", "demo.primes", "--priority", "2", "--background"], "give one of the two"),
        (["nightly", "0 0 * * *", "demo.primes", "--missed", "often"], "'often' is not one of"),
        (["nightly", "0 0 * * *"], "missing argument 'KIND'"),
    ):
        done = ratchet("schedule", "add", *arguments)
        assert done.code == 2, arguments
        assert told in done.err
    assert ratchet("schedule", "next", "now and then").code == 2
    assert ratchet("schedule", "list", "--json").json == []


def sums_file(folder: Path) -> str:
    file = folder / "sums.json"
    file.write_text(json.dumps(write_spec(replace(sums(), workflow_id="Daily_Sums"))))
    return str(file)


def test_a_workflow_is_scheduled_from_its_file(ratchet: Ratchet, ledger: Ledger, tmp_path: Path) -> None:
    file = sums_file(tmp_path)
    done = ratchet(
        *("workflow", "schedule", file, "every 2 hours", "--input", "number=5", "--overlap", "queue"),
        *("--background", "--missed", "all", "--json"),
    )
    assert done.code == 0, done.err
    set_ = done.json
    assert (set_["name"], set_["kind"], set_["cron"]) == ("daily_sums", "workflow.scheduled", "0 */2 * * *")
    assert (set_["priority"], set_["missed"]) == (9, "all")
    assert (set_["payload"]["inputs"], set_["payload"]["overlap"]) == ({"number": 5}, "queue")
    assert set_["payload"]["spec"]["workflow_id"] == "Daily_Sums"


def test_a_batch_of_optimisation_is_scheduled(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("workflow", "schedule", "--optimise", "--budget", "5", "every night at 2", "--json")
    assert done.code == 0, done.err
    assert (done.json["name"], done.json["kind"], done.json["background"]) == (
        "optimise",
        "workflow.optimise",
        True,
    )
    assert done.json["payload"]["budget_usd"] == 5


def test_a_workflow_that_could_not_run_is_not_scheduled(
    ratchet: Ratchet, ledger: Ledger, tmp_path: Path
) -> None:
    file = sums_file(tmp_path)
    for arguments, code, told in (
        ([file, "daily"], 2, "number"),
        ([file, "sometimes", "--input", "number=5"], 2, "'sometimes' says nothing"),
        ([file, "daily", "--input", "number=many"], 2, "number"),
        (["no-such-workflow", "daily"], 1, "no-such-workflow does not exist"),
        (["missing.json", "daily"], 2, "there is no file missing.json"),
        ([file, "every", "day"], 2, "3 arguments are too many"),
        (["daily"], 2, "1 arguments are too few"),
        ([file, "daily", "--budget", "5"], 2, "--budget has no meaning without --optimise"),
        (["--optimise", "daily", "--input", "number=5"], 2, "--input has no meaning with --optimise"),
    ):
        done = ratchet("workflow", "schedule", *arguments)
        assert done.code == code, (arguments, done.err)
        assert told in done.err, (arguments, done.err)
    assert ratchet("schedule", "list", "--json").json == []
