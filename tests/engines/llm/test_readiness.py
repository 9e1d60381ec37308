"""Whether a model could be asked is found out without asking it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ratchet.engines import Engine, Readiness
from ratchet.engines.registry import open_engine
from ratchet.modelserver import ModelServer
from tests.engines.conftest import Place
from tests.engines.contract import KEY
from tests.engines.llm.subject import LlmSubject
from tests.http_server import listening


def check(engine: Engine) -> Readiness:
    return asyncio.run(engine.check())


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_an_endpoint_that_lists_the_model_is_ready_and_was_not_asked(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    address = f"{llm.url}/v1" if kind == "anthropic" else llm.url
    told = f"local/scripted: {address} answers"
    found = check(llm.open())
    assert found == Readiness(True, told, unpriced="scripted", unproven=found.unproven)
    # The scripted endpoint lists its models to everybody.
    assert found.unproven == "it lists its models without a key"
    assert llm.script.requests == []


def test_a_model_that_is_not_listed_is_mentioned(llm: LlmSubject) -> None:
    assert check(llm.open(option="local/other")).detail.endswith("answers (it does not list this model)")


def test_ollama_must_have_the_model(place: Place, model_server: ModelServer) -> None:
    found = check(LlmSubject(place, model_server, "ollama").open(option="local/qwen3"))
    assert (found.ready, found.fix) == (False, "ollama pull qwen3")


class Page(BaseHTTPRequestHandler):
    """Answers with the status in its path: a page, a place to go to, or an error."""

    def do_GET(self) -> None:
        status = int(self.path.split("/")[1])
        self.send_response(status)
        self.send_header("content-type", "text/html")
        self.send_header("location", "https://login.example/")
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"Page")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.mark.parametrize(
    ("path", "said", "better"),
    [
        ("500/v1", "HTTP 500", None),
        ("404/v1", "HTTP 404", None),
        ("429/v1", "HTTP 429", None),
        ("404", "HTTP 404", "404/v1"),
        ("404/v1/responses", "HTTP 404", "404/v1"),
    ],
)
def test_an_endpoint_that_lists_nothing_is_not_called_verified(
    place: Place, path: str, said: str, better: str | None
) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), Page)) as address:
        url = f"{address.removesuffix('/mcp')}/{path}"
        toml = f"[llm.endpoints.openai]\nbase_url = '{url}'"
        around = place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})
        found = check(open_engine("llm:gpt-5.5", around))
    assert found.ready
    assert said in (found.unproven or "")
    assert f"could not be verified ({said}" in found.detail
    if better is None:
        assert found.fix is None
    else:
        assert (found.fix or "").endswith(
            f"set llm.endpoints.openai.base_url to {url.partition(path)[0]}{better}"
        )


@pytest.mark.parametrize(("path", "hint"), [("200/v1", "the network"), ("200", "/200/v1")])
def test_an_endpoint_that_answers_with_a_page_is_not_ready_however_often_it_is_asked(
    place: Place, path: str, hint: str
) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), Page)) as address:
        toml = f"[llm.endpoints.openai]\nbase_url = '{address.removesuffix('/mcp')}/{path}'"
        around = place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})
        found = check(open_engine("llm:gpt-5.5", around))
    assert not found.ready
    assert found.failure.is_permanent
    assert "does not speak the protocol: it answers with a web page (HTML)" in found.detail
    assert hint in (found.fix or "")


class PageForAll(Page):
    do_POST = Page.do_GET


@pytest.mark.parametrize(
    ("path", "said", "fix"),
    [
        ("302/v1", "redirects to https://login.example/", "an address that answers itself"),
        ("307/v1", "redirects to https://login.example/", "an address that answers itself"),
        ("404/v1", "has neither a list of models nor chat/completions (HTTP 404)", "base_url"),
        ("404", "has neither a list of models nor chat/completions (HTTP 404)", "404/v1"),
    ],
)
def test_an_address_at_which_no_session_can_begin_is_not_ready(
    place: Place, path: str, said: str, fix: str
) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), PageForAll)) as address:
        toml = f"[llm.endpoints.openai]\nbase_url = '{address.removesuffix('/mcp')}/{path}'"
        found = check(open_engine("llm:gpt-5.5", place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})))
    assert (found.ready, found.failure.is_permanent) == (False, True)
    assert said in found.detail
    assert fix in (found.fix or "")


class Dripping(Page):
    """Sends its answer byte by byte, each sooner than anyone gives up waiting for the next."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b" ")
                time.sleep(0.2)


@pytest.mark.soak
def test_an_endpoint_whose_answer_never_ends_is_not_ready(place: Place) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), Dripping)) as address:
        toml = f"[llm.endpoints.openai]\nbase_url = '{address.removesuffix('/mcp')}/v1'"
        found = check(open_engine("llm:gpt-5.5", place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})))
    assert not found.ready
    assert "cannot be reached (no whole answer within 10 s)" in found.detail
    assert "llm.endpoints.openai.base_url" in (found.fix or "")


class LoginForSessions(Page):
    """Lists its models to everybody, and wants a login of whoever asks one."""

    kind = "text/html; charset=utf-8"

    def do_GET(self) -> None:
        self._send("application/json", b'{"object": "list", "data": [{"id": "gpt-5.5"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send(self.kind, b"<html>Sign in</html>")

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class DeepList(LoginForSessions):
    def do_GET(self) -> None:
        self._send("application/json", b"[" * 200_000 + b"]" * 200_000)


def test_json_that_is_nested_too_deeply_is_no_answer_of_a_model(place: Place) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), DeepList)) as address:
        toml = f"[llm.endpoints.openai]\nbase_url = '{address.removesuffix('/mcp')}/v1'"
        found = check(open_engine("llm:gpt-5.5", place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})))
    assert (found.ready, found.failure.is_permanent) == (False, True)
    assert "does not speak the protocol: it answers with JSON that is nested too deeply" in found.detail


def test_a_port_that_there_cannot_be_is_a_wrong_address(place: Place) -> None:
    toml = "[llm.endpoints.openai]\nbase_url = 'http://127.0.0.1:99999/v1'"
    found = check(open_engine("llm:gpt-5.5", place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})))
    assert (found.ready, found.failure.is_permanent) == (False, True)
    assert "the address http://127.0.0.1:99999/v1 is wrong (Port out of range 0-65535)" in found.detail
    assert "llm.endpoints.openai.base_url" in (found.fix or "")


class TextForSessions(LoginForSessions):
    kind = "text/plain"


@pytest.mark.parametrize(
    ("server", "what"),
    [(LoginForSessions, "a web page (HTML)"), (TextForSessions, "what is not JSON (text/plain)")],
)
@pytest.mark.parametrize(
    ("engine", "toml", "path"),
    [
        ("llm:gpt-5.5", "[llm.endpoints.openai]\nbase_url = '{url}'", "/chat/completions"),
        ("codex", "[engines.codex]\nbase_url = '{url}'\nmodel = 'gpt-5.5'", "/responses"),
    ],
)
def test_an_endpoint_that_lists_models_and_answers_sessions_with_something_else_is_not_ready(
    place: Place, server: type[Page], what: str, engine: str, toml: str, path: str
) -> None:
    with listening(HTTPServer(("127.0.0.1", 0), server)) as address:
        url = f"{address.removesuffix('/mcp')}/v1"
        around = place.surroundings(toml.format(url=url), {"OPENAI_API_KEY": "the-key"})
        found = check(open_engine(engine, around))
    assert (found.ready, found.failure.is_permanent) == (False, True)
    assert f"{url}{path} does not speak the protocol: it answers with {what}" in found.detail
    assert "the network" in (found.fix or "")


def test_a_missing_key_is_told_with_its_variable(llm: LlmSubject) -> None:
    found = check(llm.open(environment={"MODEL_KEY": ""}))
    assert (found.ready, found.fix) == (False, "export MODEL_KEY=…")


def test_nobody_there_is_told_without_the_key(llm: LlmSubject) -> None:
    found = check(llm.cannot_connect())
    assert not found.ready
    assert "http://127.0.0.1:9/v1 cannot be reached" in found.detail
    assert KEY not in repr(found)


@pytest.mark.soak
def test_an_endpoint_that_does_not_answer_is_told_in_words(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        toml = f"[llm.endpoints.openai]\nbase_url = 'http://127.0.0.1:{silent.getsockname()[1]}/v1'"
        found = check(open_engine("llm:gpt-5.5", place.surroundings(toml, {"OPENAI_API_KEY": "the-key"})))
    assert not found.ready
    assert found.detail.endswith("cannot be reached (no answer within 8 s)")


def test_one_of_several_is_enough(llm: LlmSubject) -> None:
    engine = llm.open(option="both", environment={"MODEL_KEY": ""})
    found = check(engine)
    assert found.ready
    assert "local/scripted: MODEL_KEY is not set; spare/scripted:" in found.detail
