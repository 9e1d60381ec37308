"""`ratchet agent tools` and `call`, and the same over HTTP, on one real agent behind its stable address."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ratchet.agents.host import hosting
from ratchet.config import Loaded, load_settings
from ratchet.runtime import Runtime
from ratchet.server.app import create_app
from tests.agents.settled import settle
from tests.cli.conftest import Ratchet

TOKEN = "a-token-for-tests"


@pytest.fixture
def loaded(home: Path, database_url: str) -> Loaded:
    return load_settings({"home": str(home), "database_url": database_url, "agents.port": 0}, env={})


@pytest.fixture
def hosted(runtime: Runtime, loaded: Loaded) -> Iterator[str]:
    """The commit of a greeter whose address is served by this process, in a thread of its own."""
    commit = settle(runtime)
    up, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_host(runtime, loaded, up.set, stop)))
    thread.start()
    try:
        assert up.wait(60)
        yield commit
    finally:
        stop.set()
        thread.join()


async def _host(runtime: Runtime, loaded: Loaded, up: Callable[[], None], stop: threading.Event) -> None:
    (loaded.home / "token").write_text(TOKEN)
    async with hosting(runtime, loaded, api_token=TOKEN):
        up()
        await asyncio.to_thread(stop.wait)


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_agent_is_asked_and_called_at_its_address(
    ratchet: Ratchet, runtime: Runtime, loaded: Loaded, hosted: str
) -> None:
    _check_tools(ratchet, hosted)
    _check_calls(ratchet)
    _check_mistakes(ratchet)
    _check_http(TestClient(create_app(runtime, loaded, TOKEN), headers={"Authorization": f"Bearer {TOKEN}"}))
    assert ratchet("agent", "show", "greeter", "--json").json["address"]["is_up"] is True


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_eval_that_fails_is_no_success(ratchet: Ratchet, runtime: Runtime) -> None:
    settle(runtime)
    for wanted, code in (("hello, Ada", 0), ("ahoy, Ada", 1)):
        expect = json.dumps({"equals": wanted})
        ratchet(
            "agent", "eval", "add", "greeter", "greet", "--arguments", '{"name": "Ada"}', "--expect", expect
        )
        ran = ratchet("agent", "eval", "run", "greeter")
        assert ran.code == code, ran.err
    assert "failed" in ran.out


def _check_tools(ratchet: Ratchet, commit: str) -> None:
    table = ratchet("agent", "tools", "greeter")
    assert table.code == 0, table.err
    assert [line.split()[:2] for line in table.out.splitlines()] == [
        ["tool", "arguments"],
        ["greet", "name:"],
        ["count", "-"],
    ]
    tuner = ratchet("agent", "tools", "greeter", "--tuner", "--version", commit[:8], "--json").json
    assert [each["name"] for each in tuner] == ["feedback"]
    assert tuner[0]["input_schema"]["required"] == ["text", "rating"]


def _check_calls(ratchet: Ratchet) -> None:
    said = ratchet("agent", "call", "greeter", "greet", "name=Ada")
    assert (said.code, said.out) == (0, "hello, Ada\n"), said.err
    absent = ratchet("agent", "call", "greeter", "greet", "name=@no-such-file")
    assert (absent.code, "no-such-file cannot be read" in absent.err) == (2, True)
    number = ratchet("agent", "call", "greeter", "greet", "name=7")
    assert number.out == "hello, 7\n"
    told = ratchet("agent", "call", "greeter", "count", "--version", "0.0.0", "--json").json
    assert (told["agent"], told["tool"], told["failed"], told["text"]) == ("greeter", "count", False, "2")
    noted = ratchet("agent", "call", "greeter", "feedback", "--tuner", "text=nice", "rating=5")
    assert noted.out == "noted\n"
    assert ratchet("agent", "state", "greeter").json == {"greeted": 2, "lessons": ["nice"]}


def _check_mistakes(ratchet: Ratchet) -> None:
    for words, told, hint in (
        (("shout",), "there is no tool 'shout'", "there are: greet, count"),
        (("greet", "nmae=Ada"), "greet takes no nmae", "it takes: name: string"),
        (("greet",), "greet needs name", "it takes: name: string"),
        (("greet", "--arguments", '{"nmae": 1}'), "greet takes no nmae", "it takes: name: string"),
    ):
        done = ratchet("agent", "call", "greeter", *words)
        assert (done.code, done.out) == (2, ""), words
        assert told in done.err, words
        assert hint in done.err, words
    failed = ratchet("agent", "call", "greeter", "greet", "--arguments", '{"name": [1]}', "--json")
    assert (failed.code, failed.json["failed"]) == (1, True)


def _check_http(api: TestClient) -> None:
    tools = api.get("/agents/greeter/tools").json()
    assert [each["name"] for each in tools] == ["greet", "count"]
    answer = api.post("/agents/greeter/call", json={"tool": "greet", "arguments": {"name": "Grace"}})
    assert (answer.status_code, answer.json()["text"]) == (200, "hello, Grace")
    tuned = {"tool": "feedback", "arguments": {"text": "good", "rating": 4}, "server": "tuner"}
    assert api.post("/agents/greeter/call", json=tuned).json()["text"] == "noted"
    failed = api.post("/agents/greeter/call", json={"tool": "greet", "arguments": {"name": [1]}})
    assert (failed.status_code, failed.json()["failed"]) == (200, True)
    unknown = api.post("/agents/greeter/call", json={"tool": "shout"})
    assert (unknown.status_code, unknown.json()["hint"]) == (422, "there are: greet, count")
