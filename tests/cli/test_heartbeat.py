"""A command that waits says for what, and how long a pause still takes."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from ratchet.cli.foreground import WaitNotice, follow_jobs, foreground
from ratchet.cli.output import silent_seconds
from ratchet.cli.progress import working
from ratchet.config import load_settings
from ratchet.ledger import Event
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import create_run
from tests.waiting import eventually


def event(type: str, message: str, **data: object) -> Event:
    return Event(id=1, at=0, type=type, message=message, data=data or None, actor="test")


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (event("session.tool_call", "make test"), "a tool is used: make test"),
        (event("step.needs_qa", ""), "the checks run"),
        (event("environment_command", "make setup"), "the project is set up: make setup"),
        (
            event("environment_output", "Fetching the moon"),
            "the project is set up; its command printed: Fetching the moon",
        ),
    ],
)
def test_a_run_that_is_silent_is_spoken_for(
    capsys: pytest.CaptureFixture[str], heard: Event, told: str
) -> None:
    said: list[str] = []

    def lines() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return said

    with WaitNotice(every_seconds=0.05) as heartbeat:
        heartbeat.hear(heard)
        eventually(lambda: len([each for each in lines() if each.endswith(told)]) >= 3)


def test_what_a_person_did_before_a_run_is_not_counted_as_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    eventually(lambda: silent_seconds() > 1.2)
    began = time.monotonic()
    found: list[re.Match[str]] = []

    def heard() -> bool:
        found.extend(re.finditer(r"waiting for (\d+) s", capsys.readouterr().err))
        return bool(found)

    with WaitNotice(every_seconds=0.05):
        eventually(heard)
    assert int(found[0][1]) <= time.monotonic() - began + 0.5


def test_a_pause_is_told_at_once_and_counted_down(capsys: pytest.CaptureFixture[str]) -> None:
    heartbeat = WaitNotice(every_seconds=1000)
    heartbeat.hear(event("session.retry", "later", seconds=28.0, reason="429 from the endpoint"))
    assert capsys.readouterr().err == "retrying in 28 s: 429 from the endpoint\n"


def test_a_program_that_reads_json_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with WaitNotice(quiet=True, every_seconds=0.01) as heartbeat:
        heartbeat.hear(event("session.retry", "later", seconds=28.0))
    assert capsys.readouterr().err == ""


def test_long_work_says_so_where_nobody_watches_a_moving_line(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def heard() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said).count("trying the key: ") >= 2

    with working("trying the key", every_seconds=0.01):
        eventually(heard)


@pytest.mark.parametrize("detach", [False, True])
def test_a_look_at_an_engine_that_hangs_says_that_it_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], detach: bool
) -> None:
    said: list[str] = []

    def heard() -> bool:
        said.append(capsys.readouterr().err)
        return "looking at the engine: " in "".join(said)

    with foreground(load_settings({"home": str(tmp_path)}, env={})) as here:
        here.check(lambda: eventually(heard), detach=detach, every_seconds=0.01)


def test_what_a_worker_did_before_anything_was_followed_is_told(tmp_path: Path) -> None:
    """As beside a server, which may be done with a pull request before the command that asked for it looks."""
    with foreground(load_settings({"home": str(tmp_path)}, env={})) as here:
        with here.ledger.write() as tx:
            run_id = create_run(tx, "protocol", "fix")
        with here.ledger.read() as tx:
            before = last_id(tx.connection)
        with here.ledger.write() as tx:
            tx.event("open_pr", run_id=run_id, message="https://forge/1")
        heard: list[Event] = []
        how = {"stop": threading.Event(), "wait": lambda: False}
        follow_jobs(here.ledger, run_id, heard.append, **how)
        assert heard == []
        follow_jobs(here.ledger, run_id, heard.append, after=before, **how)
    assert [each.type for each in heard] == ["open_pr"]
