"""What is told of a workflow while it runs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from ratchet.cli.progress import workflow_progress
from ratchet.kernel import EventId
from ratchet.ledger import Event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def event(type: str, name: str, message: str | None = None, **data: Any) -> Event:
    return Event(EventId(1), 0, type, "test", message=message, data={"name": name, **data})


RUN = [
    event("step.running", "first"),
    event("step.token", "first", text="The "),
    event("step.token", "first", text="tide\n"),
    event("step.token", "second", text="A"),
    event("step.output", "first", text="one\ntwo \x1b[31mred"),
    event("step.retrying", "first", "too slow"),
    event("step.failed", "first", "no luck"),
]


def test_followed_words_stay_together_and_nothing_can_command_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with workflow_progress("flow", 2, quiet=False, follow=True) as hear:
        for each in RUN:
            hear(each)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "step.running first",
        "first > The tide",
        "",
        "second > A",
        "first | one",
        r"first | two \x1b[31mred",
        "first: tries again: too slow",
        "first: failed: no luck",
    ]


def test_followed_as_json_every_event_is_a_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with workflow_progress("flow", 2, quiet=True, follow=True) as hear:
        for each in RUN:
            hear(each)
    told = capsys.readouterr()
    assert [json.loads(line)["type"] for line in told.out.splitlines()] == [each.type for each in RUN]
    assert told.err == ""


def test_without_a_terminal_there_is_a_line_for_each_end_and_with_json_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for quiet in (False, True):
        with workflow_progress("flow", 2, quiet=quiet) as hear:
            for each in RUN:
                hear(each)
    assert capsys.readouterr().err.splitlines() == ["first: tries again: too slow", "first: failed: no luck"]


def test_on_a_terminal_one_line_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with workflow_progress("flow", 5, quiet=False) as hear:
        for name in "abcde":
            hear(event("step.running", name))
        hear(event("step.completed", "a"))
    assert "1 of 5" in shown.getvalue()
    assert "b, c, d and 1 more" in shown.getvalue()
