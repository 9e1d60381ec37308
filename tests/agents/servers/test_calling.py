"""Asking servers that mean harm to whoever asks."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ratchet.agents.gateway.routes import Refusal
from ratchet.agents.servers import ServerGaveNoAnswer, call_tool, list_tools
from ratchet.engines.mcp_client import MOST_BYTES, MOST_TOOLS
from tests.agents.servers import tiny
from tests.cancelling import refusing_server, unheeded_moments
from tests.http_server import listening

_SECONDS = 20.0


def _answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    return HTTPServer(("127.0.0.1", 0), Handler)


def _write(handler: BaseHTTPRequestHandler, answer: bytes) -> None:
    handler.wfile.write(answer)


def _endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    piece = b" " * (1024 * 1024)
    try:
        for _ in range(2 * MOST_BYTES // len(piece)):
            handler.wfile.write(piece)
    except OSError:
        return


def _compressed(handler: BaseHTTPRequestHandler) -> None:
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": 0, "result": {}}).encode())
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("answer", "told"),
    [(_endless, f"more than {MOST_BYTES} bytes"), (_compressed, "compressed")],
    ids=["endless", "compressed"],
)
def test_an_answer_that_would_fill_the_memory_is_not_taken(
    answer: Callable[[BaseHTTPRequestHandler], None], told: str
) -> None:
    with listening(_answering(answer)) as url, pytest.raises(ServerGaveNoAnswer, match=told):
        asyncio.run(list_tools(url, _SECONDS))


def test_a_pattern_of_the_server_is_not_matched_in_this_process() -> None:
    def evil() -> dict[str, str]:
        return {"text": "a" * 64 + "!"}

    evil.output_schema = {  # type: ignore[attr-defined]
        "type": "object",
        "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}},
    }

    with listening(tiny.server(evil, port=0)) as url:
        said = asyncio.run(call_tool(url, "evil", {}, _SECONDS))

    assert said.structured == {"text": "a" * 64 + "!"}
    assert not said.failed


def test_no_more_tools_are_listed_than_anybody_could_use() -> None:
    def tool() -> None:
        """One of many."""

    def named(number: int) -> Any:
        return type(tool)(tool.__code__, {}, f"tool{number}")

    with listening(tiny.server(*map(named, range(MOST_TOOLS + 5)), port=0)) as url:
        assert len(asyncio.run(list_tools(url, _SECONDS))) == MOST_TOOLS


def test_asking_ends_as_cancelled_at_whichever_moment_it_is_cancelled() -> None:
    with refusing_server() as url:
        assert unheeded_moments(lambda: list_tools(url, _SECONDS)) == []


def test_what_the_gateway_answers_by_itself_is_told_with_its_hint() -> None:
    refusal = Refusal(503, "version 4f2a91 of greeter is quarantined", hint="call another version")
    refusing = _answering(lambda each: _write(each, refusal.encoded(close=True)))
    with listening(refusing) as url, pytest.raises(ServerGaveNoAnswer) as raised:
        asyncio.run(list_tools(url, _SECONDS))

    assert (str(raised.value), raised.value.hint) == (refusal.message, refusal.hint)


def test_a_proxy_of_the_environment_is_not_asked_for_what_is_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hello() -> str:
        return "hello"

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with listening(tiny.server(hello, port=0)) as url:
        said = asyncio.run(call_tool(url, "hello", {}, _SECONDS))

    assert (said.text, said.structured) == ('"hello"', {"result": "hello"})
    assert said.content == ({"type": "text", "text": '"hello"'},)
