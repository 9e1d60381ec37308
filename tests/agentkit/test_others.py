"""Calling the Architect, models and other agents, from sync and from async code."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from ratchet.agentkit import (
    AgentUnreachable,
    AnswerInvalid,
    ArchitectUnreachable,
    Misused,
    ToolFailed,
    agent,
    ask,
    call_agent,
    send_to_architect,
    surroundings,
)
from tests.agentkit.servers import TOKEN, Architect, architect

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


@pytest.fixture(scope="module")
def serving() -> Iterator[Architect]:
    with architect() as known:
        yield known


@pytest.fixture
def known(serving: Architect, monkeypatch: pytest.MonkeyPatch) -> Architect:
    monkeypatch.setenv("RATCHET_AGENTS_URL", f"{serving.url}/")
    monkeypatch.setenv("RATCHET_AGENT_TOKEN", TOKEN)
    # Whoever has a proxy must not be asked through it.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for seen in (serving.feedback, serving.asked, serving.requests):
        seen.clear()
    return serving


def test_the_architect_takes_a_message_and_gives_its_number(known: Architect) -> None:
    assert send_to_architect("do better") == 41
    assert send_to_architect("much better", severity="critical") == 42
    assert known.feedback == [("do better", "normal"), ("much better", "critical")]


def test_it_works_inside_a_running_loop_too(known: Architect) -> None:
    async def tell() -> tuple[int, str, object]:
        return send_to_architect("from a loop"), ask("hello"), call_agent("other", "add", a=1, b=2)

    assert asyncio.run(tell()) == (41, "you said hello", 3)


def test_a_message_that_is_refused_is_not_sent_again(known: Architect) -> None:
    with pytest.raises(ToolFailed, match="send_feedback") as caught:
        send_to_architect("refuse")
    assert caught.value.tool == "send_feedback"
    assert known.feedback == []


@pytest.mark.parametrize(("message", "severity"), [("", "normal"), (" \n", "normal"), ("fine", "awful")])
def test_what_cannot_be_meant_is_not_sent(known: Architect, message: str, severity: str) -> None:
    with pytest.raises(Misused):
        send_to_architect(message, severity)  # type: ignore[arg-type]
    assert known.requests == []


@pytest.mark.soak
def test_an_architect_that_is_not_there_is_tried_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RATCHET_AGENTS_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(ArchitectUnreachable, match="send it later") as caught:
            send_to_architect("hello")
    assert caught.value.taken is False


@pytest.mark.soak
def test_a_wrong_token_is_told_with_its_status(known: Architect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_AGENT_TOKEN", "of-another")
    with pytest.raises(ArchitectUnreachable, match="HTTP 401") as caught:
        send_to_architect("hello")
    assert "of-another" not in str(caught.value)
    assert known.feedback == []


def test_an_architect_that_is_lost_while_it_takes_a_message_is_not_asked_twice(
    known: Architect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _losing(known, b'"tools/call"') as (url, calls):
        monkeypatch.setenv("RATCHET_AGENTS_URL", url)
        with pytest.raises(ArchitectUnreachable, match="it may have taken the message") as caught:
            send_to_architect("hello")
    assert caught.value.taken is None
    assert len(calls) == 1


class _losing:
    """A proxy in front of the Architect that hangs up when it has read certain bytes."""

    def __init__(self, known: Architect, fatal: bytes) -> None:
        self._to = int(known.url.rpartition(":")[2])
        self._fatal = fatal
        self._calls: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> tuple[str, list[bytes]]:
        self._thread.start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}", self._calls

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                self._forward(client)

    def _forward(self, client: socket.socket) -> None:
        """One request to a connection."""
        request = b""
        while b"\r\n\r\n" not in request or len(request) < _length(request):
            chunk = client.recv(65536)
            if not chunk:
                return
            request += chunk
        if self._fatal in request:
            self._calls.append(request)
            return
        head, _, body = request.partition(b"\r\n\r\n")
        with socket.create_connection(("127.0.0.1", self._to)) as server:
            server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            while chunk := server.recv(65536):
                client.sendall(chunk)


def _length(request: bytes) -> int:
    head = request.partition(b"\r\n\r\n")[0]
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + int(lengths[0].split(b":")[1])


def test_a_process_that_ratchet_did_not_start_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RATCHET_AGENTS_URL", "RATCHET_AGENT", "RATCHET_AGENT_ROLE", "RATCHET_AGENT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ArchitectUnreachable, match="has not started"):
        send_to_architect("hello")
    with pytest.raises(AgentUnreachable, match="has not started"):
        call_agent("other", "add", a=1, b=2)
    told = surroundings()
    assert (told.agent, told.role, told.url, told.token) == (None, None, None, None)


def test_the_token_is_not_shown(known: Architect) -> None:
    assert surroundings().token == TOKEN
    assert TOKEN not in repr(surroundings())


def test_a_model_answers_with_a_text_or_with_what_the_schema_says(known: Architect) -> None:
    assert ask("hello", system="Be brief.", model="small") == "you said hello"
    assert ask("where?", schema=CITY) == {"city": "Ulm"}
    assert known.asked == [
        {"prompt": "hello", "system": "Be brief.", "schema": None, "model": "small"},
        {"prompt": "where?", "system": None, "schema": CITY, "model": None},
    ]


def test_an_answer_that_does_not_fit_the_schema_is_refused(known: Architect) -> None:
    with pytest.raises(AnswerInvalid, match=r"answer\.city does not fit"):
        ask("where?", schema={"properties": {"city": {"type": "integer"}}})
    with pytest.raises(Misused):
        ask(" ")


def test_another_agent_answers_with_what_its_tool_returned(known: Architect) -> None:
    assert call_agent("other", "add", a=1, b=2) == 3
    # An object that looks like the wrapping of another answer is still an object.
    assert call_agent("other", "describe", name="x") == {"result": "x"}
    assert set(known.requests) == {"/agents/other/runner/mcp"}


def test_a_connection_to_another_agent_serves_many_calls(known: Architect) -> None:
    async def calls() -> tuple[list[str], list[int]]:
        async with agent("other", "v1.0.0") as other:
            names = [tool.name for tool in await other.tools()]
            return names, [await other.call("add", a=number, b=1) for number in range(3)]

    names, sums = asyncio.run(calls())
    assert names == ["send_feedback", "ask_llm", "add", "describe"]
    assert sums == [1, 2, 3]
    assert set(known.requests) == {"/agents/other@v1.0.0/runner/mcp"}


def test_what_goes_wrong_with_another_agent_has_its_own_error(known: Architect) -> None:
    with pytest.raises(ToolFailed, match="add") as caught:
        call_agent("other", "add", a="one", b=2)
    assert caught.value.tool == "add"
    with pytest.raises(Misused, match="it has: send_feedback, ask_llm, add, describe"):
        call_agent("other", "subtract")
    with pytest.raises(AgentUnreachable, match="HTTP 401"):
        call_agent("absent", "add")
    with pytest.raises(Misused, match="not the name"):
        call_agent("../architect", "add")


def test_what_the_block_raises_comes_out_as_it_is(known: Architect) -> None:
    async def used() -> None:
        async with agent("other"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(used())
