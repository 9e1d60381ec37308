"""A session is tried again only where nothing is repeated by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from ratchet.engines import (
    Capabilities,
    EventKind,
    Failure,
    Readiness,
    Request,
    Session,
    SessionEvent,
    SessionFailed,
)
from ratchet.engines.run import Backoff, propose
from ratchet.kernel import Limits, Usage
from ratchet.modelserver import ModelServer, fail, say
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.contract import lines

SOON = Backoff(base_seconds=0.01)
USED = Usage(input_tokens=5, output_tokens=1, wall_ms=10)


class Moody:
    """Fails as it is told, one session after the other, and then does well."""

    name = "moody"
    capabilities = Capabilities()

    def __init__(self, *failures: Failure, worked: bool = False, retry_after: float | None = None) -> None:
        self._failures = list(failures)
        self._worked = worked
        self._retry_after = retry_after
        self.requests: list[Request] = []

    async def propose(self, request: Request) -> Session:
        self.requests.append(request)
        request.listen(SessionEvent(EventKind.USAGE, data=asdict(USED)))
        session = Session(self.name, text="well", usage=USED, transcript=b"{}\n")
        if self._failures:
            raise SessionFailed(
                self._failures.pop(0),
                "a bad day",
                session=session,
                worked=self._worked,
                retry_after=self._retry_after,
            )
        return session

    async def check(self) -> Readiness:
        return Readiness(True, "in its way")


def run(engine: Moody, request: Request | None = None, *, tries: int = 3) -> Session:
    return asyncio.run(propose(engine, request or Request("x"), tries=tries, backoff=SOON))


@pytest.mark.parametrize("failure", [Failure.RATE_LIMITED, Failure.CRASHED])
def test_a_session_that_did_nothing_is_tried_again(failure: Failure) -> None:
    engine = Moody(failure, failure)
    assert run(engine).text == "well"
    assert len(engine.requests) == 3


@pytest.mark.parametrize("failure", [Failure.RATE_LIMITED, Failure.CRASHED])
def test_a_session_that_did_something_is_not(failure: Failure) -> None:
    engine = Moody(failure, worked=True)
    with pytest.raises(SessionFailed):
        run(engine)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("failure", sorted(set(Failure) - {Failure.RATE_LIMITED, Failure.CRASHED}))
def test_what_would_fail_again_is_not_tried_again(failure: Failure) -> None:
    engine = Moody(failure)
    with pytest.raises(SessionFailed) as caught:
        run(engine)
    assert (caught.value.failure, len(engine.requests)) == (failure, 1)


class Changed(Moody):
    """Could be used when it was looked at first, and then its endpoint became a page to log in."""

    async def check(self) -> Readiness:
        return Readiness(False, "it answers with a web page", "check the network", Failure.NO_ACCESS)


def test_a_session_that_broke_at_once_fails_for_what_every_other_one_would_fail_for() -> None:
    engine = Changed(*[Failure.CRASHED] * 5)
    with pytest.raises(SessionFailed, match="it answers with a web page") as caught:
        run(engine)
    assert (caught.value.failure, caught.value.hint) == (Failure.NO_ACCESS, "check the network")
    assert len(engine.requests) == 1
    assert caught.value.session.usage.tokens == 6


def test_one_that_may_have_worked_is_looked_into_as_well() -> None:
    engine = Changed(Failure.CRASHED, worked=True)
    with pytest.raises(SessionFailed, match="it answers with a web page") as caught:
        run(engine)
    assert (caught.value.failure, caught.value.worked) == (Failure.NO_ACCESS, True)


def test_the_last_failure_is_raised_with_the_usage_of_all_tries() -> None:
    engine = Moody(*[Failure.CRASHED] * 5)
    with pytest.raises(SessionFailed) as caught:
        run(engine, tries=3)
    assert len(engine.requests) == 3
    assert caught.value.session.usage.tokens == 18


def test_what_failed_tries_used_is_added_and_told() -> None:
    heard: list[SessionEvent] = []
    session = run(Moody(Failure.CRASHED), Request("x", listen=heard.append))
    assert session.usage.tokens == 12
    told = [each.data for each in heard if each.kind is EventKind.USAGE]
    assert [each["input_tokens"] + each["output_tokens"] for each in told] == [6, 12]
    assert {each["engine"] for each in told} == {Moody.name}


def test_each_retry_is_an_event_and_in_the_transcript() -> None:
    heard: list[SessionEvent] = []
    session = run(Moody(Failure.RATE_LIMITED), Request("x", listen=heard.append))
    [retry] = [each for each in heard if each.kind is EventKind.RETRY]
    assert retry.data["failure"] == "rate_limited"
    assert "a bad day" in retry.text
    assert [each.get("kind") for each in lines(session)] == [None, "retry", None]


def test_the_wait_that_the_endpoint_asks_for_is_kept() -> None:
    began = time.monotonic()
    run(Moody(Failure.RATE_LIMITED, retry_after=0.4))
    assert time.monotonic() - began >= 0.4


def test_no_wait_goes_beyond_the_deadline() -> None:
    engine = Moody(Failure.RATE_LIMITED, retry_after=60)
    began = time.monotonic()
    with pytest.raises(SessionFailed) as caught:
        run(engine, Request("x", deadline_seconds=30))
    assert caught.value.failure is Failure.RATE_LIMITED
    assert time.monotonic() - began < 29


def test_a_later_try_has_only_what_is_left_of_time_and_budget() -> None:
    engine = Moody(Failure.RATE_LIMITED, retry_after=0.2)
    run(engine, Request("x", deadline_seconds=30, limits=Limits(tokens=10)))
    assert engine.requests[1].limits.tokens == 4
    assert engine.requests[1].deadline_seconds < 29.9


def test_a_budget_that_is_used_up_ends_the_tries() -> None:
    engine = Moody(Failure.CRASHED)
    with pytest.raises(SessionFailed):
        run(engine, Request("x", limits=Limits(tokens=6)))
    assert len(engine.requests) == 1


def test_pauses_double_up_to_a_limit_and_vary() -> None:
    backoff = Backoff(base_seconds=1, cap_seconds=10)

    def spread(number: int) -> Sequence[float]:
        return sorted(backoff.pause(number, None) for _ in range(200))

    assert all(0.5 <= each <= 1 for each in spread(1))
    assert all(2 <= each <= 4 for each in spread(3))
    assert all(5 <= each <= 10 for each in spread(1000))
    assert len(set(spread(2))) > 100


@pytest.mark.soak
def test_the_real_codex_is_tried_again_after_a_429(place: Place, model_server: ModelServer) -> None:
    subject = CodexSubject(place, model_server)
    engine = subject.open(fail(429), say("at last"), toml="retries = 0")
    session = asyncio.run(propose(engine, Request("x", deadline_seconds=60), tries=2, backoff=SOON))
    assert session.text == "at last"
    assert session.usage.tokens == 110
