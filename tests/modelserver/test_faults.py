"""What goes wrong with real models, on demand."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.kernel import Missing, Misuse
from ratchet.modelserver import ModelServer, Tokens, Turn, cut, fail, hang, say
from tests.modelserver.conftest import NAME, Play

if TYPE_CHECKING:
    import anthropic
    import openai

HI: list[Any] = [{"role": "user", "content": "hi"}]
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": HI}


@pytest.mark.parametrize("wait", [None, 1.5])
def test_a_rate_limit_comes_with_and_without_retry_after(
    play: Play, ask: openai.OpenAI, wait: float | None
) -> None:
    import openai

    play(fail(429, retry_after=wait))
    with pytest.raises(openai.RateLimitError) as caught:
        ask.responses.create(model="m", input="hi")
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers.get("retry-after") == (None if wait is None else "1.5")


def test_an_error_has_the_code_and_message_of_the_script(play: Play, ask: openai.OpenAI) -> None:
    import openai

    play(fail(429, code="insufficient_quota", message="You have spent it all."), fail(401))
    with pytest.raises(openai.RateLimitError, match=r"You have spent it all\.") as caught:
        ask.chat.completions.create(model="m", messages=HI)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
    with pytest.raises(openai.AuthenticationError, match="API key"):
        ask.chat.completions.create(model="m", messages=HI)


@pytest.mark.soak
def test_anthropics_errors_have_its_own_shape(play: Play, claude: anthropic.Anthropic) -> None:
    import anthropic

    play(fail(529), fail(400, message="too long"))
    with pytest.raises(anthropic.APIStatusError) as caught:
        claude.messages.create(**ASKED)
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
    }
    with pytest.raises(anthropic.BadRequestError, match="too long"):
        claude.messages.create(**ASKED)


@pytest.mark.soak
def test_a_stream_fails_in_its_middle(play: Play, ask: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    import anthropic
    import openai

    play(*[Turn(text="so far", error_code="overloaded_error")] * 3)
    with ask.responses.stream(model="m", input="hi") as events:
        last = list(events)[-1]
    assert (last.type, last.response.error.code) == ("response.failed", "overloaded_error")  # type: ignore[union-attr]
    with pytest.raises(openai.APIError, match="overloaded_error"):
        list(ask.chat.completions.create(model="m", messages=HI, stream=True))
    with (
        pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
        claude.messages.stream(**ASKED) as s,
    ):
        s.get_final_message()


@pytest.mark.parametrize("after", [0, 1, 4, 1000])
def test_a_cut_stream_never_looks_complete(play: Play, ask: openai.OpenAI, after: int) -> None:
    import openai

    play(cut("one two three", after=after))
    with pytest.raises((openai.APIConnectionError, _transport_error())) as caught:
        list(ask.chat.completions.create(model="m", messages=HI, stream=True))
    assert caught.value is not None


def test_an_answer_without_a_stream_can_be_cut_too(play: Play, claude: anthropic.Anthropic) -> None:
    import anthropic

    play(cut(after=1), cut(after=0))
    for _ in range(2):
        with pytest.raises(anthropic.APIConnectionError):
            claude.messages.create(**ASKED)


@pytest.mark.parametrize("after", [0, 2])
def test_a_client_gives_up_on_an_answer_that_hangs(play: Play, ask: openai.OpenAI, after: int) -> None:
    import openai

    play(hang(after=after), say("back again"))
    patient = ask.with_options(timeout=0.2)
    with pytest.raises((openai.APITimeoutError, _transport_error())):
        list(patient.responses.create(model="m", input="hi", stream=True))
    assert ask.responses.create(model="m", input="hi").output_text == "back again"


def test_answers_come_late_and_slowly(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(text="a b c", delay_seconds=0.2, pace_seconds=0.03))
    began = time.monotonic()
    with ask.chat.completions.stream(model="m", messages=HI) as stream:
        arrivals = [time.monotonic() - began for event in stream if event.type == "content.delta"]
    assert arrivals[0] >= 0.2
    assert arrivals[-1] >= 0.2 + 2 * 0.03  # from the start: a busy client reads early words late


def test_an_answer_can_be_nonsense(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(raw="<html>Bad gateway</html>"), Turn(raw="data: {nonsense\n\n"))
    raw = ask.responses.with_raw_response.create(model="m", input="hi")
    assert raw.text == "<html>Bad gateway</html>"
    with pytest.raises(ValueError, match="Expecting"):
        list(ask.responses.create(model="m", input="hi", stream=True))


def test_many_small_answers_do_not_stall(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(text="a b c d e f", repeat=100))
    taken = []
    for _ in range(100):
        began = time.monotonic()
        list(ask.responses.create(model="m", input="hi", stream=True))
        taken.append(time.monotonic() - began)
    # If small packets waited for an acknowledgement, each but the first would take 40 ms, on any machine.
    assert sorted(taken)[1] < 0.035


def test_stopping_does_not_wait_for_a_stream_that_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    server = ModelServer()
    server.start()
    server.script("stuck", [hang(after=2), hang(), Turn(text="x", delay_seconds=60)])
    clients = [_request(server, "stuck") for _ in range(3)]
    time.sleep(0.1)
    server.stop()
    for client in clients:
        with client:
            while client.recv(65536):
                pass
    assert set(threading.enumerate()) <= before
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "body", [b"not json", b"[]", b'{"messages": 5, "tools": {"a": 1}, "stream": true}', b"[" * 100_000]
)
def test_hostile_requests_get_an_answer(
    play: Play, model_server: ModelServer, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    play(say("hi"))
    for path in ("responses", "chat/completions", "messages"):
        with _request(model_server, NAME, path, body) as client:
            assert client.recv(65536).startswith(b"HTTP/1.1 ")
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_an_error(model_server: ModelServer) -> None:
    port = int(model_server.url.rpartition(":")[2])
    with pytest.raises(Missing, match=f"port {port}"):
        ModelServer(port=port).start()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Turn(status=99),
        lambda: Turn(repeat=0),
        lambda: Turn(delay_seconds=-1),
        lambda: Turn(delay_seconds=float("nan")),
        lambda: Turn(cut_after=1, hang_after=1),
        lambda: Turn(cut_after=1, raw="x"),
        lambda: Turn(hang_after=1, status=500),
        lambda: Turn(status=500, text="fine"),
        lambda: Tokens(input=1, cached=2),
        lambda: Tokens(output=-1),
    ],
)
def test_a_turn_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(Misuse):
        make()


def _request(
    server: ModelServer, name: str, path: str = "responses", body: bytes = b'{"stream": true}'
) -> socket.socket:
    """A request of a client that has not read the answer yet."""
    client = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5)
    head = f"POST /s/{name}/v1/{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def _transport_error() -> type[Exception]:
    """What OpenAI's client lets through when a stream breaks."""
    import httpx2

    return httpx2.TransportError
