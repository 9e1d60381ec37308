"""Every way in which a session of Claude can go wrong is told apart, and none of them is a success."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.engines import EventKind, Failure, Request, SessionEvent
from ratchet.extras import install_line
from ratchet.kernel import Limits, Misuse
from ratchet.modelserver import ModelServer, Turn, call, cut, fail, hang, say
from tests.engines.claude_subject import NOBODY, ClaudeSubject
from tests.engines.conftest import Place
from tests.engines.contract import KEY, fails, lines, propose


@pytest.fixture
def subject(place: Place, model_server: ModelServer) -> ClaudeSubject:
    return ClaudeSubject(place, model_server)


@pytest.fixture
def asked(workspace: Path) -> Request:
    return Request("Do it.", workspace=workspace, deadline_seconds=60)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("status", "failure", "word"),
    [
        (400, Failure.REFUSED, "base_url"),
        (401, Failure.NO_ACCESS, "ANTHROPIC_API_KEY"),
        (403, Failure.NO_ACCESS, "ANTHROPIC_API_KEY"),
        (404, Failure.NO_ACCESS, "model"),
        (429, Failure.RATE_LIMITED, "later"),
        (500, Failure.CRASHED, "network"),
        (503, Failure.CRASHED, "network"),
        (529, Failure.RATE_LIMITED, "later"),
    ],
)
def test_an_endpoint_that_refuses_is_told_apart(
    subject: ClaudeSubject, asked: Request, status: int, failure: Failure, word: str
) -> None:
    failed = fails(subject.plays([fail(status)] * 8), asked)
    assert (failed.failure, failed.worked) == (failure, False)
    assert failed.hint is not None
    assert word in failed.hint


@pytest.mark.soak
def test_an_endpoint_that_repeats_the_key_does_not_spread_it(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.plays([fail(403, message=f"{KEY} may not do that")] * 4), asked)
    assert "may not do that" in str(failed)
    assert KEY not in f"{failed} {failed.session}"


@pytest.mark.soak
@pytest.mark.parametrize("turn", [cut(after=0), cut(after=3), Turn(raw="<html>Welcome</html>")])
def test_a_stream_that_breaks_or_is_nonsense_is_a_crash(
    subject: ClaudeSubject, asked: Request, turn: Turn
) -> None:
    failed = fails(subject.plays([turn] * 4), asked)
    assert failed.failure is Failure.CRASHED
    assert subject.script.left == 3


@pytest.mark.soak
def test_a_model_that_refuses_is_refused(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.plays([Turn(text="no", ended="refused")] * 4), asked)
    assert (failed.failure, failed.worked) == (Failure.REFUSED, True)


@pytest.mark.soak
def test_an_answer_that_never_ends_is_a_crash(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.plays([Turn(text="and so on", ended="length")] * 8), asked)
    assert failed.failure is Failure.CRASHED
    assert "output token maximum" in str(failed)


@pytest.mark.soak
def test_a_session_in_which_nothing_was_said_or_done_is_bad_output(
    subject: ClaudeSubject, asked: Request
) -> None:
    assert fails(subject.plays([Turn()] * 4), asked).failure is Failure.BAD_OUTPUT


@pytest.mark.soak
def test_waiting_for_longer_than_the_deadline_is_not_begun(subject: ClaudeSubject, asked: Request) -> None:
    began = time.monotonic()
    failed = fails(
        subject.plays([fail(429, retry_after=50)] * 3, retries=2), replace(asked, deadline_seconds=40)
    )
    assert (failed.failure, failed.worked) == (Failure.RATE_LIMITED, False)
    assert failed.retry_after == pytest.approx(50, abs=20)
    assert time.monotonic() - began < 39


@pytest.mark.soak
def test_an_endpoint_that_wants_to_be_left_alone_for_an_hour_is_not_waited_for(
    subject: ClaudeSubject, asked: Request
) -> None:
    failed = fails(subject.plays([fail(429, retry_after=3600)] * 3, retries=2), asked)
    assert (failed.failure, failed.worked) == (Failure.RATE_LIMITED, False)


@pytest.mark.soak
def test_requests_are_repeated_as_often_as_the_settings_say(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.plays([fail(500)] * 4, retries=1), asked)
    assert subject.script.left == 2
    assert [line["data"]["status"] for line in lines(failed.session) if line["kind"] == EventKind.RETRY] == [
        500
    ]


@pytest.mark.soak
def test_a_request_that_works_the_second_time_is_no_failure(subject: ClaudeSubject, asked: Request) -> None:
    engine = subject.plays([fail(429, retry_after=0.1), say("At last.")], retries=1)
    assert propose(engine, asked).text == "At last."


@pytest.mark.soak
@pytest.mark.parametrize("events", [0, 2])
def test_an_endpoint_that_falls_silent_ends_the_session_before_its_deadline(
    subject: ClaudeSubject, asked: Request, events: int
) -> None:
    began = time.monotonic()
    failed = fails(subject.plays([hang(after=events)], idle_seconds=1), asked)
    assert failed.failure is Failure.CRASHED
    assert "idle_seconds" in str(failed.hint)
    assert time.monotonic() - began < 39


@pytest.mark.soak
def test_a_command_that_says_nothing_is_not_a_silent_endpoint(subject: ClaudeSubject, asked: Request) -> None:
    engine = subject.plays([call("Bash", command="sleep 6"), say("done")], idle_seconds=4)
    assert propose(engine, asked).text == "done"


@pytest.mark.soak
def test_a_session_that_runs_out_of_time_still_tells_what_it_cost(
    subject: ClaudeSubject, workspace: Path
) -> None:
    engine = subject.plays([call("Bash", command="sleep 60"), say("done")])
    failed = fails(engine, Request("Do it.", workspace=workspace, deadline_seconds=10))
    usage = failed.session.usage
    assert (failed.failure, usage.tokens) == (Failure.TIMEOUT, 110)
    assert usage.cost_microusd > 0


@pytest.mark.soak
def test_too_many_turns_use_up_the_budget(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.plays([call("Bash", command="true")] * 4, max_turns=2), asked)
    assert (failed.failure, subject.script.left) == (Failure.BUDGET, 2)
    assert "max_turns" in str(failed.hint)


@pytest.mark.soak
def test_money_that_is_used_up_ends_the_session(subject: ClaudeSubject, workspace: Path) -> None:
    engine = subject.plays([call("Bash", command="true")] * 9)
    limits = Limits(cost_usd=0.001)
    failed = fails(engine, Request("Do it.", workspace=workspace, deadline_seconds=60, limits=limits))
    assert failed.failure is Failure.BUDGET
    assert failed.session.usage.cost_usd > 0.001
    assert subject.script.left > 5


@pytest.mark.soak
def test_tokens_that_are_used_up_end_the_session_while_it_runs(
    subject: ClaudeSubject, workspace: Path
) -> None:
    engine = subject.plays([call("Bash", command="sleep 0.2")] * 20)
    limits = Limits(tokens=250)
    failed = fails(engine, Request("Do it.", workspace=workspace, deadline_seconds=60, limits=limits))
    assert failed.failure is Failure.BUDGET
    assert 250 < failed.session.usage.tokens < 700


@pytest.mark.parametrize("limits", [Limits(tokens=0), Limits(cost_usd=0.0), Limits(wall_seconds=0.0)])
def test_nothing_is_started_without_a_budget(subject: ClaudeSubject, workspace: Path, limits: Limits) -> None:
    failed = fails(subject.plays([say("x")]), Request("Do it.", workspace=workspace, limits=limits))
    assert (failed.failure, failed.worked, subject.script.left) == (Failure.BUDGET, False, 1)


def test_without_a_key_nothing_is_started(subject: ClaudeSubject, asked: Request) -> None:
    failed = fails(subject.open(base_url=None, key_variable="NOT_SET"), asked)
    assert (failed.failure, failed.worked, failed.exit_code) == (Failure.MISSING, False, 3)
    assert "NOT_SET" in str(failed.hint)


@pytest.mark.soak
def test_an_endpoint_of_ones_own_needs_no_key(subject: ClaudeSubject, asked: Request) -> None:
    assert propose(subject.plays([say("x")], key_variable="NOT_SET"), asked).text == "x"


def test_a_missing_sdk_is_named_with_its_extra(
    subject: ClaudeSubject, asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    failed = fails(subject.open(), asked)
    assert failed.failure is Failure.MISSING
    assert install_line("claude") == failed.hint


PROGRAMS = {
    "absent": None,
    "of another kind": "echo 2.1.325 of something else",
    "too old": "echo '2.0.9 (Claude Code)'",
    "broken": "echo no such library >&2; exit 127",
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_that_will_not_do_is_missing(
    subject: ClaudeSubject, asked: Request, tmp_path: Path, body: str | None
) -> None:
    failed = fails(subject.plays([say("x")], path=_program(tmp_path, body)), asked)
    assert (failed.failure, failed.worked) == (Failure.MISSING, False)
    assert str(tmp_path) in str(failed)
    assert failed.hint


@pytest.mark.soak
@pytest.mark.parametrize(
    "body",
    ["echo out of luck >&2; exit 3", "echo out of luck; exit 0", 'echo \'{"type": "nonsense\'', "kill -9 $$"],
)
def test_a_program_that_breaks_off_is_a_crash(
    subject: ClaudeSubject, asked: Request, tmp_path: Path, body: str
) -> None:
    version = '[ "$1" = --version ] && echo "2.1.325 (Claude Code)" && exit'
    failed = fails(subject.open(path=_program(tmp_path, f"{version}\n{body}")), asked)
    assert (failed.failure, failed.worked) == (Failure.CRASHED, False)
    if ">&2" in body:
        assert "out of luck" in str(failed)


@pytest.mark.soak
def test_a_listener_that_breaks_is_not_taken_for_a_fault_of_the_session(
    subject: ClaudeSubject, workspace: Path
) -> None:
    def listen(event: SessionEvent) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        propose(subject.plays([say("x")]), Request("Do it.", workspace=workspace, listen=listen))


def test_what_can_never_be_served_is_misuse(subject: ClaudeSubject, tmp_path: Path) -> None:
    engine = subject.open(base_url=NOBODY)
    for request in (Request(" "), Request("Do it.", workspace=tmp_path / "nowhere")):
        with pytest.raises(Misuse):
            propose(engine, request)


def _program(tmp_path: Path, body: str | None) -> str:
    path = tmp_path / "program"
    if body is not None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return str(path)
