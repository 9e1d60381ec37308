"""Tools of this process over real MCP: with the official client, and with the programs of real agents."""

from __future__ import annotations

import asyncio
import json
import socket
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from mcp import Client
from mcp.types import CallToolResult

from ratchet.config.engine_settings import Claude, Codex
from ratchet.engines import Capabilities, EngineTool, McpServer, Request
from ratchet.engines.claude.environment import make_environment, write_servers
from ratchet.engines.codex.configuration import CodexAccess, SessionFiles, write_files
from ratchet.engines.endpoint import HiddenKeys, SettingNames
from ratchet.engines.program import past_the_proxy
from ratchet.engines.tool_server import Way, offer, served, way_to
from ratchet.kernel import Conflict, Misuse
from ratchet.modelserver import ModelServer, call_mcp, say
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.fixed import FixedEngine
from tests.engines.llm.subject import LlmSubject

NAMES = SettingNames("OPENAI_API_KEY", "engines.codex", "engines.codex.model")
Run = Callable[[Mapping[str, Any]], Awaitable[str]]
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}}


async def add(given: Mapping[str, Any]) -> str:
    return str(given["a"] + given["b"])


ADD = EngineTool("add", "Add two numbers.", NUMBERS, add)


def plain(name: str, run: Run) -> EngineTool:
    return EngineTool(name, "Do it.", NOTHING, run)


def waiting(begun: asyncio.Event, ended: list[str], name: str = "wait") -> EngineTool:
    async def wait(_given: Mapping[str, Any]) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
        return "never"

    return plain(name, wait)


def text_of(result: CallToolResult) -> str:
    return "".join(getattr(each, "text", "") for each in result.content)


async def used(server: McpServer, name: str, **given: Any) -> CallToolResult:
    assert server.url is not None
    async with Client(server.url) as client:
        return await client.call_tool(name, given)


def answers(server: McpServer) -> bool:
    at = urlsplit(server.url or "")
    with socket.socket() as trial:
        return trial.connect_ex((at.hostname, at.port)) == 0


def test_an_official_client_lists_and_uses_the_tools() -> None:
    async def run() -> None:
        async with served([ADD]) as server, Client(server.url or "") as client:
            [listed] = (await client.list_tools()).tools
            assert (listed.name, listed.description, listed.input_schema) == (
                "add",
                "Add two numbers.",
                NUMBERS,
            )
            answered = await client.call_tool("add", {"a": 2, "b": 3})
            assert (text_of(answered), answered.is_error) == ("5", False)

    asyncio.run(run())


def test_a_client_of_the_older_protocol_is_served_as_well() -> None:
    async def run() -> None:
        async with served([ADD]) as server, Client(server.url or "", mode="legacy") as client:
            assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"

    asyncio.run(run())


@pytest.mark.parametrize(
    "given", [{}, {"a": 1}, {"a": 1, "b": "2"}, {"a": 1, "b": 2, "c": 3}, {"a": True, "b": 1}]
)
def test_arguments_that_do_not_fit_never_reach_the_tool(given: dict[str, Any]) -> None:
    reached: list[Mapping[str, Any]] = []

    async def note(arguments: Mapping[str, Any]) -> str:
        reached.append(arguments)
        return "noted"

    async def run() -> None:
        async with served([EngineTool("add", "Add.", NUMBERS, note)]) as server:
            answered = await used(server, "add", **given)
            assert answered.is_error
            assert "add cannot be used" in text_of(answered)

    asyncio.run(run())
    assert reached == []


def test_errors_and_unknown_tools_are_told_as_tool_errors() -> None:
    async def fail(_given: Mapping[str, Any]) -> str:
        raise ZeroDivisionError("by nought")

    async def refuse(_given: Mapping[str, Any]) -> str:
        raise Conflict("not now", hint="later")

    async def run() -> list[tuple[bool, str]]:
        async with served([plain("fail", fail), plain("refuse", refuse)]) as server:
            answers = [await used(server, name) for name in ("fail", "refuse", "nothing")]
            return [(bool(each.is_error), text_of(each)) for each in answers]

    assert asyncio.run(run()) == [
        (True, "ZeroDivisionError: by nought"),
        (True, "not now (later)"),
        (True, "there is no tool 'nothing'; there are: fail, refuse"),
    ]


def test_leaving_the_block_cancels_what_runs_and_waits_for_its_end() -> None:
    async def run() -> None:
        ended: list[str] = []
        begun = [asyncio.Event(), asyncio.Event()]
        tools = [waiting(begun[0], ended, "one"), waiting(begun[1], ended, "two")]
        async with served(tools) as server:
            calls = [asyncio.create_task(used(server, name)) for name in ("one", "two")]
            for event in begun:
                await asyncio.wait_for(event.wait(), 30)
        assert sorted(ended) == ["one", "two"]
        await asyncio.gather(*calls, return_exceptions=True)
        assert not answers(server)

    asyncio.run(run())


def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    async def run() -> None:
        ended: list[str] = []
        begun = asyncio.Event()
        at: list[McpServer] = []

        async def hold() -> None:
            async with served([waiting(begun, ended)]) as server:
                at.append(server)
                await used(server, "wait")

        task = asyncio.create_task(hold())
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)
        assert ended == ["wait"]
        assert not answers(at[0])

    asyncio.run(run())


def test_a_call_that_its_client_gives_up_is_cancelled() -> None:
    async def run() -> None:
        ended: list[str] = []
        begun, over = asyncio.Event(), asyncio.Event()

        async def wait(_given: Mapping[str, Any]) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("wait")
                over.set()
            return "never"

        async with served([plain("wait", wait), ADD]) as server, Client(server.url or "") as client:
            calling = asyncio.create_task(client.call_tool("wait", {}))
            await asyncio.wait_for(begun.wait(), 30)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            await asyncio.wait_for(over.wait(), 30)
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"

    asyncio.run(run())


def test_only_who_knows_the_path_is_answered() -> None:
    async def run() -> None:
        async with served([ADD]) as one, served([ADD]) as other:
            parts, others = urlsplit(one.url or ""), urlsplit(other.url or "")
            assert parts.hostname == "127.0.0.1"
            assert len(parts.path) > 40
            assert parts.path != others.path
            async with httpx.AsyncClient() as client:
                for path in ("/", "/mcp", others.path, f"{parts.path}/more", parts.path[:-1], "/%ff"):
                    guessed = await client.post(f"http://{parts.netloc}{path}", json={})
                    assert guessed.status_code == 404, path

    asyncio.run(run())


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_page_in_a_browser_cannot_use_it(header: dict[str, str]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream", **header}

    async def run() -> int:
        async with served([ADD]) as server, httpx.AsyncClient() as client:
            return (await client.post(server.url or "", json=body, headers=headers)).status_code

    assert asyncio.run(run()) in (403, 421)


@pytest.mark.parametrize(
    "tools",
    [[ADD, ADD], [EngineTool("bad", "Bad.", {"type": "nothing like it"}, add)]],
    ids=["twice", "schema"],
)
def test_tools_that_cannot_be_offered_are_refused(tools: list[EngineTool]) -> None:
    async def run() -> None:
        async with served(tools):
            pass

    with pytest.raises(Misuse):
        asyncio.run(run())


class Able(FixedEngine):
    """An engine that can do what it says."""

    def __init__(self, **can: bool) -> None:
        super().__init__({})
        self.capabilities = Capabilities(**can)


def test_an_engine_is_given_tools_in_the_way_that_it_can_take() -> None:
    async def offered(engine: Able) -> tuple[Way, tuple[str, ...], tuple[EngineTool, ...]]:
        async with offer(engine, Request("x"), [ADD]) as made:
            names = tuple(server.name for server in made.request.mcp_servers)
            return made.way, names, made.request.tools

    assert asyncio.run(offered(Able(mcp_tools=True, own_tools=True))) == (Way.MCP, ("ratchet",), ())
    assert asyncio.run(offered(Able(own_tools=True))) == (Way.FUNCTIONS, (), (ADD,))
    assert asyncio.run(offered(Able())) == (Way.NONE, (), ())
    assert way_to(Able()) is Way.NONE


def test_a_call_may_take_as_long_as_the_session(tmp_path: Path) -> None:
    request = Request("x", mcp_servers=(McpServer("lab", url="http://127.0.0.1:1/x"),), deadline_seconds=7200)
    home = tmp_path / "codex"
    home.mkdir()
    write_files(SessionFiles(home), CodexAccess(Codex(), None, {}, HiddenKeys(()), NAMES), request, tmp_path)
    tables = tomllib.loads((home / "config.toml").read_text())
    assert tables["mcp_servers"]["lab"]["tool_timeout_sec"] == 7200
    write_servers(request, tmp_path / "servers.json")
    servers = json.loads((tmp_path / "servers.json").read_text())["mcpServers"]
    assert servers["lab"]["timeout"] == 7_200_000


def test_no_proxy_is_asked_for_what_is_on_this_machine(tmp_path: Path) -> None:
    around = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet"}
    access = CodexAccess(Codex(), None, around, HiddenKeys(()), NAMES)
    variables = write_files(SessionFiles(tmp_path), access, Request("x"), tmp_path)
    assert variables["NO_PROXY"] == variables["no_proxy"] == "intranet,127.0.0.1"
    settings = make_environment(around, Claude(), home=tmp_path, sdk_version="1")
    assert settings["NO_PROXY"] == settings["no_proxy"] == "intranet,127.0.0.1"
    assert past_the_proxy({"HTTPS_PROXY": "http://proxy:3128"}) == {}


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["codex", "claude", "llm"])
def test_a_real_agent_uses_them(place: Place, workspace: Path, model_server: ModelServer, kind: str) -> None:
    turns = [call_mcp("ratchet", "add", a=2, b=3), call_mcp("ratchet", "add", a="x", b=3), say("done")]
    subject: Any
    match kind:
        case "codex":
            subject = CodexSubject(place, model_server)
            engine = subject.open(*turns)
        case "claude":
            subject = ClaudeSubject(place, model_server)
            engine = subject.plays(turns)
        case _:
            subject = LlmSubject(place, model_server)
            engine = subject.open(*turns)

    async def run() -> None:
        request = Request("Do it.", workspace=workspace, deadline_seconds=120)
        async with offer(engine, request, [ADD]) as offered:
            assert offered.way is Way.MCP
            await engine.propose(offered.request)

    asyncio.run(run())
    first, second = (each.results[-1] for each in subject.script.requests[1:])
    assert "5" in first
    assert "cannot be used" in second
