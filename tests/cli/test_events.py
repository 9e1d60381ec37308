from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import datetime

import pytest

from ratchet.ledger import Ledger
from tests.cli.conftest import Ratchet
from tests.cli.program import Program

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]


def append(ledger: Ledger, *types: str, **values: object) -> None:
    with ledger.write(actor="test") as tx:
        for type in types:
            tx.event(type, **values)  # type: ignore[arg-type]


def test_no_events_say_what_to_do_next_beside_the_output(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("events")
    assert (done.code, done.out) == (0, "")
    assert "--follow" in done.err
    assert ratchet("events", "--json").out == ""


def test_the_newest_events_come_last(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, *(f"test.n{number}" for number in range(60)))
    types = [each["type"] for each in ratchet("events", "--json", "--limit", "3").lines]
    assert types == ["test.n57", "test.n58", "test.n59"]
    assert len(ratchet("events", "--json").lines) == 50


def test_since_reads_on_from_a_number(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, "test.a", "test.b", "test.c", "test.d")
    first = ratchet("events", "--json", "-n", "1", "--since", "0").lines[0]
    following = ratchet("events", "--json", "--since", str(first["id"]), "--limit", "2").lines
    assert [each["type"] for each in following] == ["test.b", "test.c"]


def test_events_are_chosen_by_what_they_are_about(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, "run.started", run_id=1)
    append(ledger, "run.ended", run_id=2)
    append(ledger, "step.started", step_id=3, run_id=1)
    append(ledger, "job.failed", job_id=4)
    append(ledger, "project.created", project_id=5)

    def found(*options: str) -> list[str]:
        return [each["type"] for each in ratchet("events", "--json", *options).lines]

    assert found("--run", "1") == ["run.started", "step.started"]
    assert found("--step", "3") == ["step.started"]
    assert found("--job", "4") == ["job.failed"]
    assert found("--project", "5") == ["project.created"]
    assert found("--type", "run.*") == ["run.started", "run.ended"]
    assert found("--type", "run.ended") == ["run.ended"]


def test_an_event_is_one_json_line_with_an_iso_time(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, "test.odd", message="two\nlines \x1b[31m", data={"deep": [1, None]}, run_id=7)
    [event] = ratchet("--json", "events").lines
    assert event.keys() == {
        *(
            "id",
            "at",
            "type",
            "actor",
            "request_id",
            "project_id",
            "run_id",
            "step_id",
            "attempt_id",
            "job_id",
        ),
        *("message", "data"),
    }
    assert event["at"].endswith("Z")
    assert datetime.fromisoformat(event["at"]).utcoffset() is not None
    assert event["message"] == "two\nlines \x1b[31m"
    assert event["data"] == {"deep": [1, None]}


def test_a_table_obeys_no_control_characters(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, "test.odd", message="\x1b[2Jgone [bold]kept[/bold] \u202e")
    out = ratchet("events").out
    assert r"\x1b[2Jgone [bold]kept[/bold] \u202e" in out
    assert "\x1b" not in out


def test_a_long_row_is_neither_wrapped_nor_cut_when_piped(ratchet: Ratchet, ledger: Ledger) -> None:
    append(ledger, "test.long", message="x" * 5000, run_id=1)
    header, row = ratchet("events").out.splitlines()
    assert header.split() == ["event", "time", "type", "about", "message"]
    assert row.endswith("x" * 5000)


@pytest.mark.soak
def test_following_shows_an_event_of_another_process_within_a_second(
    program: Program, ledger: Ledger, ending: Keep
) -> None:
    append(ledger, "test.before")
    process = ending(program.start("events", "--follow", "--json"))
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["type"] == "test.before"
    delays = []
    for _ in range(5):
        time.sleep(0.2)
        appended = time.monotonic()
        append(ledger, "test.after")
        assert json.loads(process.stdout.readline())["type"] == "test.after"
        delays.append(time.monotonic() - appended)
    # At its best: the machine may be busy with other tests.
    assert min(delays) < 1


@pytest.mark.soak
def test_following_ends_cleanly_on_ctrl_c(program: Program, ledger: Ledger, ending: Keep) -> None:
    append(ledger, "test.before", message="hello")
    process = ending(program.start("events", "--follow", "--since", "0"))
    assert process.stdout is not None
    assert "hello" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert (out, err) == ("", "Following; Ctrl-C ends it.\n")


@pytest.mark.soak
def test_following_may_begin_with_nothing_old(program: Program, ledger: Ledger, ending: Keep) -> None:
    append(ledger, "test.before")
    process = ending(program.start("events", "-f", "-n", "0", "--type", "test.*"))
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.readline()
    append(ledger, "other.kind", "test.after")
    assert "test.after" in process.stdout.readline()
