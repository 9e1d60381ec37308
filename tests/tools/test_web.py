"""Tools that are web services: the right request, and none to where it must not go."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ratchet.config.workflow_settings import Tools
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.openapi import find_operation, question
from ratchet.tools.web import check_address, credentials
from tests.tools.bench import Bench
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

SECRET = "a-secret-of-the-weather"
SPEC: dict[str, Any] = {
    "openapi": "3.0.0",
    "paths": {
        "/cities/{city}/weather": {
            "parameters": [{"$ref": "#/components/parameters/City"}],
            "get": {
                "operationId": "weather",
                "parameters": [
                    {"name": "days", "in": "query", "schema": {"type": "integer"}},
                    {"name": "tag", "in": "query"},
                    {"name": "X-Units", "in": "header"},
                ],
            },
        },
        "/reports": {"post": {"operationId": "report", "requestBody": {"content": {"application/json": {}}}}},
    },
    "components": {"parameters": {"City": {"name": "city", "in": "path", "required": True}}},
}


@dataclass
class Service:
    """Writes down what it is asked, and answers what it is told to."""

    url: str = ""
    status: int = 200
    content: bytes = b'{"ok": true}'
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def service() -> Iterator[Service]:
    told = Service()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            told.asked.append(
                (self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            )
            content = json.dumps(SPEC).encode() if self.path == "/spec.json" else told.content
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def web_tool(service: Service, *, network: bool = False, **body: Any) -> Tool:
    given = {"spec_dict": SPEC, "base_url": service.url, **body}
    return read_tool(
        {"type": "openapi", "network": network, "openapi": {k: v for k, v in given.items() if v is not None}},
        folder=None,
        id="weather",
    )


def test_every_input_goes_to_its_place(bench: Bench, service: Service) -> None:
    given = {"operation": "weather", "city": "São Paulo/1", "days": 3, "tag": ["a", "b"], "X-Units": "metric"}
    assert bench.call(web_tool(service), given).value == {"ok": True}
    [(method, path, headers, _)] = service.asked
    assert (method, path) == ("GET", "/cities/S%C3%A3o%20Paulo%2F1/weather?days=3&tag=a&tag=b")
    assert headers["x-units"] == "metric"
    assert headers["host"] == service.url.removeprefix("http://")


def test_inputs_without_a_place_are_the_body(bench: Bench, service: Service) -> None:
    bench.call(web_tool(service, operation="report"), {"title": "Rain", "mm": 3})
    bench.call(web_tool(service, operation="report"), {"body": [1, 2]})
    assert [json.loads(body) for _, _, _, body in service.asked] == [{"title": "Rain", "mm": 3}, [1, 2]]
    assert service.asked[0][2]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "weather, report"),
        ({"operation": "fly"}, "'fly'"),
        ({"operation": "weather"}, "'city'"),
        ({"operation": "weather", "city": "x", "speed": 3}, "'speed'"),
        ({"operation": "weather", "city": ".."}, "'..'"),
        ({"operation": "weather", "city": "x", "days": {"a": 1}}, "cannot be part of an address"),
    ],
)
def test_a_question_that_cannot_be_asked_is_not_sent(
    bench: Bench, service: Service, given: dict[str, Any], words: str
) -> None:
    failed = bench.fails(web_tool(service), given)
    assert failed.final
    assert words in str(failed)
    assert service.asked == []


def test_a_service_without_a_description_is_asked_by_method_and_path(bench: Bench, service: Service) -> None:
    tool = web_tool(service, spec_dict=None, operation="POST /items/{id}")
    bench.call(tool, {"id": 7, "name": "x"})
    bench.call(web_tool(service, spec_dict=None, operation="get /items"), {"limit": 2})
    assert [(method, path, body) for method, path, _, body in service.asked] == [
        ("POST", "/items/7", b'{"name": "x"}'),
        ("GET", "/items?limit=2", b""),
    ]


@pytest.mark.parametrize(
    ("status", "final"), [(400, True), (401, True), (404, True), (429, False), (503, False)]
)
def test_a_refusal_tells_whether_to_try_again(
    bench: Bench, service: Service, status: int, final: bool
) -> None:
    service.status, service.content = status, b'{"why": "no"}'
    failed = bench.fails(web_tool(service), {"operation": "weather", "city": "x"})
    assert failed.final is final
    assert f"HTTP {status}" in str(failed)


def test_no_redirect_is_followed(bench: Bench, service: Service) -> None:
    service.status, service.headers = 302, {"location": f"{service.url}/elsewhere"}
    failed = bench.fails(web_tool(service), {"operation": "weather", "city": "x"})
    assert "redirects" in str(failed)
    assert len(service.asked) == 1


def test_an_answer_that_is_too_large_is_broken_off(bench: Bench, service: Service) -> None:
    service.content = b'"' + b"x" * 2_000_000 + b'"'
    assert "1048576 bytes" in str(bench.fails(web_tool(service), {"operation": "weather", "city": "x"}))


def test_a_compressed_answer_is_refused(bench: Bench, service: Service) -> None:
    service.headers["content-encoding"] = "gzip"
    assert "compressed" in str(bench.fails(web_tool(service), {"operation": "weather", "city": "x"}))


@pytest.mark.parametrize(
    ("content", "kind", "value"),
    [(b"plain", "text/plain", "plain"), (b"", "application/json", None), (b"[1]", "text/plain", [1])],
)
def test_an_answer_is_json_or_text(
    bench: Bench, service: Service, content: bytes, kind: str, value: Any
) -> None:
    service.content, service.headers = content, {"content-type": kind}
    assert bench.call(web_tool(service), {"operation": "weather", "city": "x"}).value == value


def test_json_that_is_none_is_a_failure(bench: Bench, service: Service) -> None:
    service.content = b"<html>"
    assert "<html>" in str(bench.fails(web_tool(service), {"operation": "weather", "city": "x"}))


def test_nobody_there_is_a_failure_that_may_pass(bench: Bench, service: Service) -> None:
    tool = web_tool(service, base_url="http://127.0.0.1:9")
    failed = bench.fails(tool, {"operation": "weather", "city": "x"})
    assert not failed.final
    assert "cannot be reached" in str(failed)


def test_a_description_is_fetched_only_by_a_tool_with_the_network(bench: Bench, service: Service) -> None:
    where = {"spec_dict": None, "spec_url": f"{service.url}/spec.json"}
    given = {"operation": "weather", "city": "x"}
    assert "`network: true`" in (bench.fails(web_tool(service, **where), given).hint or "")
    assert service.asked == []
    assert bench.call(web_tool(service, network=True, **where), given).value == {"ok": True}
    assert [path for _, path, _, _ in service.asked] == ["/spec.json", "/cities/x/weather"]


def test_a_description_alone_does_not_lead_to_machines_of_the_house(bench: Bench, service: Service) -> None:
    tool = web_tool(service, base_url=None, spec_dict={**SPEC, "servers": [{"url": service.url}]})
    failed = bench.fails(tool, {"operation": "weather", "city": "x"})
    assert "not one of the internet" in str(failed)
    assert service.asked == []


@pytest.mark.parametrize(
    ("host", "address", "named"),
    [
        ("example.org", "127.0.0.1", True),
        ("example.org", "10.0.0.1", True),
        ("example.org", "169.254.169.254", True),
        ("169.254.169.254", "169.254.169.254", True),
        ("fe80::1", "fe80::1%eth0", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("::1", "::1", False),
        ("example.org", "::ffff:127.0.0.1", True),
    ],
)
def test_addresses_that_are_refused(host: str, address: str, named: bool) -> None:
    with pytest.raises(ToolCallFailed, match="not one of the internet"):
        check_address(host, address, named=named)


@pytest.mark.parametrize(
    ("host", "address", "named"),
    [
        ("example.org", "93.184.216.34", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("::1", "::1", True),
    ],
)
def test_addresses_that_are_reached(host: str, address: str, named: bool) -> None:
    check_address(host, address, named=named)


@pytest.mark.soak
def test_a_secret_is_sent_and_never_told(
    service: Service, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", SECRET)
    service.status, service.content = 401, f"the key {SECRET} is wrong".encode()
    tool = web_tool(service, auth={"type": "bearer", "variable": "WEATHER_KEY"})
    failed = bench.fails(tool, {"operation": "weather", "city": "x"})
    assert service.asked[0][2]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in f"{failed} {failed.hint} {failed.said}"


def test_a_secret_that_the_settings_do_not_allow_is_not_sent(
    service: Service, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", SECRET)
    tool = web_tool(service, auth={"type": "bearer", "variable": "OTHER_KEY"})
    failed = bench.fails(tool, {"operation": "weather", "city": "x"})
    assert "tools.variables" in (failed.hint or "")
    assert service.asked == []


@pytest.mark.parametrize(
    ("auth", "headers", "query"),
    [
        ({}, {}, ()),
        ({"type": "none"}, {}, ()),
        ({"type": "bearer", "token": "${KEY_A}"}, {"authorization": "Bearer value-a"}, ()),
        ({"type": "basic", "env": "KEY_A"}, {"authorization": "Basic dmFsdWUtYQ=="}, ()),
        ({"type": "api_key", "variable": "KEY_A", "name": "X-Key"}, {"X-Key": "value-a"}, ()),
        ({"type": "apiKey", "variable": "KEY_A", "in": "query", "name": "k"}, {}, (("k", "value-a"),)),
    ],
)
def test_ways_to_show_a_secret(
    auth: dict[str, Any], headers: dict[str, str], query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_A", "value-a")
    who = credentials(auth, Tools(variables="KEY_A"))
    assert (dict(who.headers), who.query) == (headers, query)


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "token": "sk-a-real-secret"},
        {"type": "bearer"},
        {"type": "magic", "variable": "KEY_A"},
        {"type": "bearer", "variable": "PATH"},
    ],
)
def test_a_definition_holds_no_secret_and_takes_none_that_is_not_allowed(
    auth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_A", "value-a")
    with pytest.raises(ToolCallFailed) as failed:
        credentials(auth, Tools(variables="KEY_A"))
    assert failed.value.final
    assert "sk-a-real-secret" not in str(failed.value)


def test_references_that_go_round_lead_nowhere() -> None:
    spec = {"paths": {"/a": {"$ref": "#/paths/~1a"}, "/b": {"get": {"parameters": [{"$ref": "http://x/y"}]}}}}
    asked = question(find_operation(spec, "GET /b"), {})
    assert (asked.method, asked.path) == ("GET", "/b")
