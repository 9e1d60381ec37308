"""What goes wrong at the endpoint is told as the failure that it is, never as a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.engines import EventKind, Failure, Request, SessionEvent
from ratchet.engines.codex.session import fault_of
from ratchet.engines.endpoint import SettingNames
from ratchet.kernel import Limits
from ratchet.modelserver import ModelServer, Turn, call, cut, fail, hang, say
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.contract import KEY, fails, propose

NAMES = SettingNames("OPENAI_API_KEY", "engines.codex", "engines.codex.model")


@pytest.fixture
def codex(place: Place, model_server: ModelServer) -> CodexSubject:
    return CodexSubject(place, model_server)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("turn", "failure", "hint"),
    [
        (fail(400), Failure.REFUSED, "engines.codex.model"),
        (fail(401), Failure.NO_ACCESS, "MODEL_KEY"),
        (fail(403), Failure.NO_ACCESS, "MODEL_KEY"),
        (fail(404), Failure.NO_ACCESS, "base_url"),
        (fail(429), Failure.RATE_LIMITED, "later"),
        (fail(429, retry_after=1), Failure.RATE_LIMITED, "later"),
        (fail(429, code="insufficient_quota"), Failure.NO_ACCESS, "billing"),
        (fail(400, code="context_length_exceeded"), Failure.REFUSED, "less"),
        (Turn(error_code="context_length_exceeded"), Failure.REFUSED, "less"),
        (Turn(error_code="insufficient_quota"), Failure.NO_ACCESS, "billing"),
        (Turn(error_code="rate_limit_exceeded"), Failure.RATE_LIMITED, "later"),
        (fail(500), Failure.CRASHED, "endpoint"),
        (fail(503), Failure.CRASHED, "endpoint"),
        (Turn(error_code="server_error"), Failure.CRASHED, "endpoint"),
        (cut(after=0), Failure.CRASHED, "endpoint"),
    ],
)
def test_an_endpoint_that_does_not_answer_is_a_typed_failure(
    codex: CodexSubject, workspace: Path, turn: Turn, failure: Failure, hint: str
) -> None:
    failed = fails(codex.open(turn, toml="retries = 0"), Request("x", workspace))
    assert failed.failure is failure
    assert hint in (failed.hint or "")
    assert not failed.worked
    assert KEY not in str(failed)


def test_a_stream_cut_after_the_model_spoke_has_worked(codex: CodexSubject, workspace: Path) -> None:
    engine = codex.open(call("exec_command", cmd="echo x > made.txt"), cut(after=3), toml="retries = 0")
    failed = fails(engine, Request("x", workspace))
    assert (failed.failure, failed.worked) == (Failure.CRASHED, True)
    assert (workspace / "made.txt").exists()


def test_what_a_failed_turn_used_is_counted(codex: CodexSubject, workspace: Path) -> None:
    engine = codex.open(call("exec_command", cmd="true"), fail(500), toml="retries = 0")
    failed = fails(engine, Request("x", workspace))
    assert failed.session.usage.tokens == 110
    assert failed.session.resume


@pytest.mark.soak
@pytest.mark.parametrize("after", [0, 1])
def test_an_endpoint_that_falls_silent_is_given_up(codex: CodexSubject, workspace: Path, after: int) -> None:
    engine = codex.open(hang(after=after), toml="retries = 0\nidle_seconds = 1")
    failed = fails(engine, Request("x", workspace, deadline_seconds=50))
    assert failed.failure is Failure.CRASHED


def test_a_model_that_refuses_to_speak_is_no_success(codex: CodexSubject, workspace: Path) -> None:
    failed = fails(codex.open(Turn(text="no", ended="refused")), Request("x", workspace))
    assert failed.failure is Failure.BAD_OUTPUT
    assert "refused" in (failed.hint or "")


def test_an_answer_cut_by_its_length_is_bad_output(codex: CodexSubject, workspace: Path) -> None:
    failed = fails(
        codex.open(Turn(text="and so", ended="length"), toml="retries = 0"), Request("x", workspace)
    )
    assert failed.failure is Failure.BAD_OUTPUT


def test_a_broken_connection_that_comes_back_is_no_failure(codex: CodexSubject, workspace: Path) -> None:
    heard: list[SessionEvent] = []
    engine = codex.open(fail(500), say("done"), toml="retries = 1")
    assert propose(engine, Request("x", workspace, listen=heard.append)).text == "done"
    assert EventKind.RETRY in {each.kind for each in heard}


@pytest.mark.soak
def test_a_wait_that_the_endpoint_asks_for_is_told_while_codex_waits(
    codex: CodexSubject, workspace: Path
) -> None:
    heard: list[SessionEvent] = []
    engine = codex.open(fail(429, retry_after=1), say("hello"))
    session = propose(engine, Request("Say hello.", workspace=workspace, listen=heard.append))
    assert session.text == "hello"
    [told] = [each.text for each in heard if each.kind is EventKind.RETRY]
    assert told.startswith("the model server asked to wait; Codex retries by itself: Reconnecting... 1/")
    assert "429" in told


@pytest.mark.soak
def test_a_long_wait_that_the_endpoint_asks_for_at_the_start_is_not_left_to_codex(
    codex: CodexSubject, workspace: Path
) -> None:
    engine = codex.open(*[fail(429, retry_after=600)] * 3, toml="idle_seconds = 2")
    failed = fails(engine, Request("Say hello.", workspace=workspace, deadline_seconds=120))
    assert (failed.failure, failed.worked) == (Failure.RATE_LIMITED, False)
    assert "asked Codex to wait for more than 2 s" in str(failed)


def test_a_request_is_repeated_as_often_as_the_settings_say(codex: CodexSubject, workspace: Path) -> None:
    fails(codex.open(*[fail(500)] * 9, toml="retries = 2"), Request("x", workspace))
    assert codex.script is not None
    assert len(codex.script.requests) == 3


def test_the_budget_ends_a_session_that_is_still_running(codex: CodexSubject, workspace: Path) -> None:
    engine = codex.open(call("exec_command", cmd="true"), call("exec_command", cmd="true"), hang())
    failed = fails(engine, Request("x", workspace, limits=Limits(tokens=150), deadline_seconds=60))
    assert failed.failure is Failure.BUDGET
    assert failed.session.usage.tokens == 220


@pytest.mark.soak
def test_the_wall_time_of_the_budget_ends_it_before_the_deadline(
    codex: CodexSubject, workspace: Path
) -> None:
    failed = fails(codex.open(hang()), Request("x", workspace, limits=Limits(wall_seconds=1.5)))
    assert failed.failure is Failure.BUDGET


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("rate limit exceeded: Please try again in 3s.", 3.0),
        ("Rate limit reached. Please try again in 250ms", 0.25),
        ("Rate limit reached. Please try again in 1m2.5s", 62.5),
        ("Rate limit reached.", None),
    ],
)
def test_how_long_to_wait_is_read_from_the_message(message: str, seconds: float | None) -> None:
    fault = fault_of(message, "rate_limit_exceeded", NAMES)
    assert (fault.failure, fault.retry_after) == (Failure.RATE_LIMITED, seconds)


@pytest.mark.parametrize("reason", [None, "other", "a reason of the future", {"odd": None}, ["x"]])
def test_an_unknown_reason_falls_back_on_the_text(reason: object) -> None:
    assert fault_of("unexpected status 401 Unauthorized", reason, NAMES).failure is Failure.NO_ACCESS
    assert fault_of("never seen before", reason, NAMES).failure is Failure.CRASHED
