"""What can go wrong is a typed failure that says what to do, never an answer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ratchet.engines import EventKind, Failure, Request, SessionEvent
from ratchet.modelserver import Exchange, ModelServer, Turn, cut, fail, hang, say
from tests.engines.conftest import Place
from tests.engines.contract import KEY, fails, lines, propose
from tests.engines.llm.subject import LlmSubject
from tests.waiting import eventually_async

KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
HI = Request("hi", deadline_seconds=30)


def again(turn: Turn) -> Turn:
    return replace(turn, repeat="always")


@pytest.mark.soak
@KINDS
@pytest.mark.parametrize(
    ("turn", "failure", "worked", "calls"),
    [
        (fail(400), Failure.REFUSED, False, 1),
        (fail(401), Failure.NO_ACCESS, False, 1),
        (fail(403), Failure.NO_ACCESS, False, 1),
        (fail(404), Failure.NO_ACCESS, False, 1),
        (fail(429, code="insufficient_quota"), Failure.NO_ACCESS, False, 1),
        (fail(400, message="Your credit balance is too low."), Failure.NO_ACCESS, False, 1),
        (fail(302), Failure.REFUSED, False, 1),
        (fail(429), Failure.RATE_LIMITED, False, 3),
        (fail(429, retry_after=0.01), Failure.RATE_LIMITED, False, 3),
        (fail(429, retry_after=3600), Failure.RATE_LIMITED, False, 1),
        (fail(500), Failure.CRASHED, True, 3),
        (fail(503), Failure.CRASHED, False, 3),
        (cut(after=0), Failure.CRASHED, True, 3),
        (cut(after=3), Failure.CRASHED, True, 3),
        (Turn(text="abc", error_code="server_error"), Failure.CRASHED, True, 3),
        (Turn(raw="<html>It works!</html>"), Failure.CRASHED, True, 3),
        (Turn(raw='data: {"choices": 7}\n\n'), Failure.CRASHED, True, None),
        (Turn(raw="data: [1, {]\n\n"), Failure.CRASHED, True, None),
        (Turn(text="I will not.", ended="refused"), Failure.REFUSED, True, 1),
        (Turn(text="Once upon", ended="length"), Failure.BAD_OUTPUT, True, 1),
    ],
)
def test_each_fault_has_its_kind(
    place: Place,
    model_server: ModelServer,
    kind: str,
    turn: Turn,
    failure: Failure,
    worked: bool,
    calls: int | None,
) -> None:
    llm = LlmSubject(place, model_server, kind)
    failed = fails(llm.open(again(turn)), HI)
    assert (failed.failure, failed.worked) == (failure, worked), str(failed)
    assert "local/scripted" in str(failed)
    assert calls in (None, len(llm.script.requests))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_the_variable_that_holds_it(llm: LlmSubject, status: int) -> None:
    failed = fails(llm.open(fail(status)), HI)
    assert f"HTTP {status}" in str(failed)
    assert "export MODEL_KEY=" in (failed.hint or "")


def test_a_key_that_is_not_set_is_missing_before_anything_is_sent(llm: LlmSubject) -> None:
    failed = fails(llm.open(say("x"), environment={"MODEL_KEY": ""}), HI)
    assert (failed.failure, failed.worked, failed.exit_code) == (Failure.MISSING, False, 3)
    assert "the environment variable MODEL_KEY is not set" in str(failed)
    assert llm.script.requests == []


def test_a_key_comes_back_in_no_message(llm: LlmSubject) -> None:
    heard: list[SessionEvent] = []
    told = fail(429, message=f"Too much from {KEY}")
    engine = llm.open(told, again(fail(401, message=f"Incorrect key: {KEY}")))
    failed = fails(engine, replace(HI, listen=heard.append))
    assert "Incorrect key: ********" in str(failed)
    assert failed.__cause__ is None
    assert failed.__suppress_context__
    assert KEY not in repr(heard) + str(failed) + failed.session.transcript.decode()


def test_a_key_that_comes_back_in_two_pieces_is_not_told(llm: LlmSubject) -> None:
    heard: list[SessionEvent] = []
    pieces = [f"Your key {KEY[:5]}", f"{KEY[5:]} is fine."]
    body = "".join(_chunk(piece) for piece in pieces) + _chunk("", "stop")
    session = propose(llm.open(Turn(raw=body)), replace(HI, listen=heard.append))
    assert session.text == "Your key ******** is fine."
    assert KEY[5:] not in repr(heard)


def test_a_pause_that_is_asked_for_is_kept(llm: LlmSubject) -> None:
    session = propose(llm.open(fail(429, retry_after=0.6), say("hello")), HI)
    first, second = llm.script.requests
    assert second.at - first.at >= 0.6
    retried = [each["text"] for each in lines(session) if each["kind"] == EventKind.RETRY]
    assert len(retried) == 1
    assert "asking again in 0.6 s" in retried[0]


def test_a_pause_beyond_the_deadline_is_not_begun(llm: LlmSubject) -> None:
    began = time.monotonic()
    failed = fails(llm.open(fail(429, retry_after=60)), replace(HI, deadline_seconds=30))
    assert (failed.failure, failed.retry_after) == (Failure.RATE_LIMITED, 60)
    assert time.monotonic() - began < 29


def test_a_pause_beyond_the_patience_is_not_begun_and_holds_off_others(llm: LlmSubject) -> None:
    engine = llm.open(fail(429, retry_after=30), say("x"), llm="patience_seconds = 0.5")
    assert fails(engine, HI).retry_after == 30
    second = fails(engine, HI)
    assert (second.failure, len(llm.script.requests)) == (Failure.RATE_LIMITED, 1)
    assert 25 < (second.retry_after or 0) <= 30


def test_a_call_is_tried_as_often_as_it_is_told(llm: LlmSubject) -> None:
    fails(llm.open(again(fail(500)), llm="tries = 2"), HI)
    assert len(llm.script.requests) == 2


def test_the_pause_between_tries_grows(llm: LlmSubject) -> None:
    fails(llm.open(again(fail(500)), llm="retry_base_seconds = 0.2"), HI)
    first, second, third = (each.at for each in llm.script.requests)
    assert third - second > second - first > 0.1


def test_what_fails_once_does_not_fail_the_session(llm: LlmSubject) -> None:
    session = propose(llm.open(cut(after=3), fail(503), say("hello")), HI)
    assert (session.text, len(llm.script.requests)) == ("hello", 3)


def test_a_call_that_takes_too_long_is_given_up(llm: LlmSubject) -> None:
    failed = fails(llm.open(hang(after=3), llm="call_seconds = 0.5"), HI)
    assert failed.failure is Failure.TIMEOUT
    assert failed.hint == "raise llm.call_seconds"
    assert len(llm.script.requests) == 1


@pytest.mark.soak
def test_an_endless_answer_is_broken_off(llm: LlmSubject) -> None:
    flood = "data: " + "x" * (70 * 1024 * 1024)
    failed = fails(llm.open(again(Turn(raw=flood)), llm="tries = 1"), HI)
    assert failed.failure is Failure.CRASHED


@KINDS
def test_a_stream_that_ends_between_two_events_is_no_whole_answer(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}},
    ]
    said = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    raw = said if kind == "anthropic" else _chunk("half")
    failed = fails(LlmSubject(place, model_server, kind).open(again(Turn(raw=raw))), HI)
    assert failed.failure is Failure.CRASHED
    assert "half" in "".join(each["text"] for each in lines(failed.session))


def test_cancelling_closes_the_connection_at_once(place: Place) -> None:
    ended: list[Exchange] = []
    with ModelServer(watch=ended.append) as server:
        llm = LlmSubject(place, server)
        engine = llm.open(hang(after=3))

        async def run() -> None:
            task = asyncio.create_task(engine.propose(HI))
            await eventually_async(lambda: bool(llm.script.requests))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually_async(lambda: bool(ended))

        asyncio.run(run())
    assert "until the client went away" in ended[0].ending


def test_what_a_listener_raises_is_not_taken_for_a_fault_of_the_model(llm: LlmSubject) -> None:
    def listen(event: SessionEvent) -> None:
        if event.kind is EventKind.MESSAGE:
            raise LookupError("the ledger is gone")

    with pytest.raises(LookupError, match="the ledger is gone"):
        propose(llm.open(again(say("hello"))), replace(HI, listen=listen))
    assert len(llm.script.requests) == 1


def test_a_redirect_is_not_followed(llm: LlmSubject) -> None:
    llm.open(say("hello"))

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(307)
            self.send_header("location", f"{llm.url}/chat/completions")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        try:
            failed = fails(llm.at(f"http://127.0.0.1:{server.server_port}/v1"), HI)
        finally:
            server.shutdown()
    assert failed.failure is Failure.REFUSED
    assert "redirects elsewhere" in str(failed)
    assert llm.script.requests == []


def test_variables_meant_for_the_makers_clients_are_not_sent(
    llm: LlmSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "ambient")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-mine: ambient")
    propose(llm.open(say("hello")), HI)
    assert "ambient" not in repr(llm.script.requests[0].headers)
    assert llm.script.requests[0].headers["authorization"] == f"Bearer {KEY}"


def _chunk(text: str, reason: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
