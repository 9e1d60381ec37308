"""The Architect over real MCP, in both eras of the protocol: who may use what, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from ratchet.agents.addresses import AgentTokens
from ratchet.agents.architect_server import architect_listening
from ratchet.agents.architect_service import Callers
from ratchet.agents.contract import place_of
from ratchet.agents.host import hosting
from ratchet.agents.servers import call_tool
from ratchet.config import Loaded
from ratchet.config.engine_settings import CommandSettings
from ratchet.ledger import EventFilter, Ledger, Run
from ratchet.ledger.agents import AgentVersion, get_agent
from ratchet.ledger.events import since
from ratchet.ledger.production import waiting_remarks
from ratchet.ledger.runs import get_run, list_runs
from ratchet.modelserver import ModelServer, fail, say
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime
from tests.agents.made_up import make_agent, make_version
from tests.agents.specimens import write_agent
from tests.engines.contract import KEY
from tests.modelserver.fixtures import model_server  # noqa: F401 - a fixture
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually_async

API = "the-token-of-the-api"
EVERYTHING = {
    "create_agent",
    "send_feedback",
    "list_agents",
    "get_agent",
    "compare_versions",
    "promote",
    "rollback",
}
FOR_AGENTS = {"send_feedback", "ask_llm"}
Era = Literal["auto", "legacy"]
both_eras = pytest.mark.parametrize("era", ["auto", "legacy"])
only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class Here:
    """A listening Architect."""

    port: int
    tokens: AgentTokens

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/architect/mcp"

    @asynccontextmanager
    async def client(self, token: str, era: Era = "auto") -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era) as client,
        ):
            yield client

    async def use(self, token: str, tool: str, era: Era = "auto", **given: Any) -> CallToolResult:
        async with self.client(token, era) as client:
            return await client.call_tool(tool, given)

    async def told(self, tool: str, **given: Any) -> Any:
        """What a tool tells whoever holds the API token."""
        answer = await self.use(API, tool, **given)
        assert not answer.is_error, words(answer)
        assert json.loads(words(answer)) == answer.structured_content
        return answer.structured_content

    async def complaint(self, token: str, tool: str, **given: Any) -> str:
        answer = await self.use(token, tool, **given)
        assert answer.is_error, words(answer)
        return words(answer)


def words(answer: CallToolResult) -> str:
    return "".join(getattr(each, "text", "") for each in answer.content)


def listening(
    runtime: Runtime,
    loaded: Loaded,
    act: Callable[[Here], Coroutine[Any, Any, None]],
    *,
    api_token: str = API,
) -> None:
    """Do something while the Architect listens."""

    async def run() -> None:
        tokens = AgentTokens()
        async with architect_listening(runtime, loaded, tokens, api_token=API) as port:
            await act(Here(port, tokens))

    asyncio.run(run())


def greeter(ledger: Ledger, home: Path) -> tuple[str, AgentVersion]:
    """An agent with two versions: the first one's commit, and the current version."""
    first = make_agent(ledger, home).current
    assert first is not None
    return first, make_version(ledger, home, "greeter", "0.1.0", parent=first, runner="# better\n")


def run_of(ledger: Ledger, told: Any) -> Run:
    with ledger.read() as tx:
        return get_run(tx, told["run_id"])


@only_sqlite
@both_eras
def test_each_caller_sees_only_the_tools_that_it_may_use(runtime: Runtime, loaded: Loaded, era: Era) -> None:
    async def act(here: Here) -> None:
        agent = here.tokens.mint("greeter", "a" * 40)
        for token, names in ((API, EVERYTHING), (agent, FOR_AGENTS)):
            async with here.client(token, era) as client:
                tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == names
            for tool in tools:
                assert tool.description
                assert tool.output_schema
                assert tool.input_schema["additionalProperties"] is False
                assert tool.annotations is not None
                reads = tool.name in ("list_agents", "get_agent", "compare_versions")
                assert tool.annotations.read_only_hint is reads

    listening(runtime, loaded, act)


@only_sqlite
def test_a_stranger_is_not_let_in(runtime: Runtime, loaded: Loaded) -> None:
    strange = [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {API}x"},
        {"Authorization": f"Basic {API}"},
        {"Authorization": API},
        {"Authorization": f"Bearer {AgentTokens().mint('greeter', 'a' * 40)}"},
        {"Authorization": "Bearer " + "a" * 10_000},
        {"Authorization": b"Bearer \xff\xfe"},
    ]

    async def act(here: Here) -> None:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient() as http:
            for headers in strange:
                for method in ("POST", "GET", "DELETE"):
                    body = ask if method == "POST" else None
                    refused = await http.request(method, here.url, headers={**accept, **headers}, json=body)
                    assert refused.status_code == 401, headers
                    assert refused.headers["www-authenticate"].startswith("Bearer")
            good = {**accept, "Authorization": f"Bearer {API}"}
            assert (await http.post(here.url, headers=good, json=ask)).status_code == 200
            assert (await http.post(f"{here.url}/x", headers=good, json=ask)).status_code == 404
            elsewhere = {**good, "Host": "evil.example:80"}
            assert (await http.post(here.url, headers=elsewhere, json=ask)).status_code == 421
            page = {**good, "Origin": "http://evil.example"}
            assert (await http.post(here.url, headers=page, json=ask)).status_code == 403

    listening(runtime, loaded, act)


@pytest.mark.parametrize("given", [b"", b"Bearer", b"Bearer ", b"Bearer  "])
def test_an_empty_api_token_is_nobodys(given: bytes) -> None:
    assert Callers(AgentTokens(), "").of(given) is None


@pytest.mark.soak
def test_asking_for_an_agent_starts_a_run_which_can_be_waited_for(
    runtime: Runtime, loaded: Loaded, worker: Worker, ledger: Ledger
) -> None:
    # The worker's own author is asked; the engine that is looked at beforehand is one that needs no key.
    agents = runtime.settings.agents.model_copy(update={"engine": "quiet"})
    engines = runtime.settings.engines.model_copy(
        update={"command": {"quiet": CommandSettings(argv=["true"])}}
    )
    runtime.settings = runtime.settings.replace(agents=agents, engines=engines)

    async def act(here: Here) -> None:
        begun = await here.told("create_agent", name="rude", description="refuse")
        assert begun["status"] in ("pending", "running")
        ended = await here.told("create_agent", name="ruder", description="refuse", wait_seconds=60)
        assert (ended["status"], ended["simulated"]) == ("failed", False)
        assert "that makes no sense" in ended["reason"]
        assert run_of(ledger, ended).spec["action"] == "create"
        with ledger.read() as tx:
            [created, *_] = since(
                tx.connection, where=EventFilter(run_id=ended["run_id"], type="run.created")
            )
        assert created.actor == "mcp"

    listening(runtime, loaded, act)


@both_eras
def test_feedback_of_a_tuner_is_about_the_version_of_its_token(
    runtime: Runtime, loaded: Loaded, ledger: Ledger, era: Era
) -> None:
    first, current = greeter(ledger, loaded.home)

    async def act(here: Here) -> None:
        token = here.tokens.mint("greeter", first)
        given = {"message": "too shy", "severity": "high", "agent": "greeter", "version": "v0.0.0"}
        answer = await here.use(token, "send_feedback", era, **given)
        assert not answer.is_error, words(answer)
        assert (answer.structured_content["status"], answer.structured_content["run_id"]) == ("waiting", None)
        await here.use(here.tokens.mint("greeter", current.commit), "send_feedback", message="too loud")
        # It is said again, and is one remark.
        again = await here.use(token, "send_feedback", era, message="Too shy!")
        assert again.structured_content["count"] == 2

    listening(runtime, loaded, act)
    with ledger.read() as tx:
        old, new = waiting_remarks(tx, current.agent_id)
        assert [run.spec["action"] for run in list_runs(tx)] == ["create"]
    assert (old.commit, old.severity, old.message) == (first, "high", "too shy")
    assert (new.commit, new.severity) == (current.commit, "normal")


@pytest.mark.soak
@only_sqlite
def test_an_agent_can_do_nothing_but_speak_for_itself(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    first, current = greeter(ledger, loaded.home)
    make_agent(ledger, loaded.home, "other")

    async def act(here: Here) -> None:
        token = here.tokens.mint("greeter", first)
        for name in EVERYTHING - FOR_AGENTS:
            said = await here.complaint(token, name, name="mine", description="x", version="latest")
            assert f"there is no tool '{name}' for you; there are: send_feedback, ask_llm" in said
        for given in ({"agent": "other"}, {"version": current.commit}, {"version": "latest"}):
            said = await here.complaint(token, "send_feedback", message="change it", **given)
            assert "for the version 0.0.0 of greeter alone" in said
        for lost in (here.tokens.mint("greeter", "0" * 40), here.tokens.mint("nobody", first)):
            assert "does not exist" in await here.complaint(lost, "send_feedback", message="hello")
            assert "does not exist" in await here.complaint(lost, "ask_llm", prompt="hello")

    listening(runtime, loaded, act)
    with ledger.read() as tx:
        assert [run.spec["action"] for run in list_runs(tx)] == ["create", "create"]


@pytest.mark.soak
@only_sqlite
def test_an_agent_that_complains_without_end_is_stopped(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    first, _ = greeter(ledger, loaded.home)

    async def act(here: Here) -> None:
        async with here.client(here.tokens.mint("greeter", first)) as client:
            calls = [
                client.call_tool("send_feedback", {"message": f"wrong {'x' * n}"}) for n in range(1, 111)
            ]
            answers = await asyncio.gather(*calls)
        refused = [words(answer) for answer in answers if answer.is_error]
        assert len(refused) == 10
        assert all("wait already" in each for each in refused)

    listening(runtime, loaded, act)


@only_sqlite
def test_a_message_of_a_megabyte_is_taken_and_a_longer_one_is_not(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    greeter(ledger, loaded.home)
    most = loaded.settings.agents.feedback_bytes

    async def act(here: Here) -> None:
        taken = await here.told("send_feedback", agent="greeter", message="ä" * (most // 2))
        assert taken["status"] == "pending"
        said = await here.complaint(API, "send_feedback", agent="greeter", message="a" * (most + 1))
        assert f"at most {most} are taken" in said
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {API}"}) as http:
            flood = await http.post(here.url, content=b" " * (8 * most))
        assert flood.status_code == 413

    listening(runtime, loaded, act)


@only_sqlite
def test_rubbish_is_refused_and_the_next_caller_served(runtime: Runtime, loaded: Loaded) -> None:
    bodies = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"tools/list"',
        b'{"jsonrpc": "2.0"}',
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": 7}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 7}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_agent", "arguments": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}',
    ]

    async def act(here: Here) -> None:
        headers = {
            "Authorization": f"Bearer {API}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        async with httpx2.AsyncClient(headers=headers) as http:
            for version in ({}, {"MCP-Protocol-Version": "2026-07-28"}, {"MCP-Protocol-Version": "?"}):
                for body in bodies:
                    answer = await http.post(here.url, content=body, headers=version)
                    assert answer.status_code < 500, (version, body[:80])
                    assert answer.status_code >= 400 or b'"error"' in answer.content, (version, body[:80])
        assert await here.told("list_agents") == {"agents": []}

    listening(runtime, loaded, act)


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("create_agent", {"name": "x"}),
    ("create_agent", {"name": "x", "description": 7}),
    ("create_agent", {"name": "x", "description": "y", "colour": "red"}),
    ("create_agent", {"name": "x", "description": "y", "wait_seconds": 601}),
    ("create_agent", {"name": "../x", "description": "y"}),
    ("create_agent", {"name": "x", "description": "   "}),
    ("create_agent", {"name": "x", "description": "y", "engine": "nobody"}),
    ("send_feedback", {"agent": "greeter", "message": "x", "severity": "awful"}),
    ("send_feedback", {"agent": "nobody", "message": "x"}),
    ("send_feedback", {"agent": "greeter", "message": "x", "version": "9.9.9"}),
    ("list_agents", {"limit": 0}),
    ("get_agent", {"name": "nobody"}),
    ("promote", {"name": "greeter", "version": "9.9.9"}),
    ("compare_versions", {"name": "greeter", "old": "../../etc"}),
    ("no_such_tool", {}),
]


@only_sqlite
def test_what_cannot_be_done_is_told_and_nothing_begins(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    greeter(ledger, loaded.home)

    async def act(here: Here) -> None:
        async with here.client(API) as client:
            answers = [(tool, given, await client.call_tool(tool, given)) for tool, given in IMPOSSIBLE]
        assert [(tool, given) for tool, given, answer in answers if not answer.is_error] == []
        assert all(words(answer) and "within the Architect" not in words(answer) for _, _, answer in answers)

    listening(runtime, loaded, act)
    with ledger.read() as tx:
        assert len(list_runs(tx)) == 1


@pytest.mark.soak
def test_versions_are_listed_compared_rolled_back_and_promoted(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    first, second = greeter(ledger, loaded.home)

    async def act(here: Here) -> None:
        [listed] = (await here.told("list_agents"))["agents"]
        assert (listed["name"], listed["version"]) == ("greeter", "0.1.0")
        shown = await here.told("get_agent", name="greeter")
        assert [each["version"] for each in shown["versions"]] == ["0.1.0", "0.0.0"]
        compared = await here.told("compare_versions", name="greeter")
        assert (compared["old"]["commit"], compared["new"]["commit"]) == (first, second.commit)
        assert "+# better" in compared["diff"]
        back = await here.told("rollback", name="greeter")
        assert (back["commit"], back["before"]) == (first, second.commit)
        ahead = await here.told("promote", name="greeter", version="0.1.0")
        assert (ahead["version"], ahead["before"]) == ("0.1.0", first)

    listening(runtime, loaded, act)
    with ledger.read() as tx:
        assert get_agent(tx, "greeter").current == second.commit
        moves = since(tx.connection, where=EventFilter(type="agent.rolled_back"))
        assert [(event.actor, event.data["to"]) for event in moves] == [("mcp", first)]


@pytest.mark.soak
@only_sqlite
def test_twenty_callers_are_served_at_once(runtime: Runtime, loaded: Loaded, ledger: Ledger) -> None:
    greeter(ledger, loaded.home)

    async def act(here: Here) -> None:
        async with here.client(API) as modern, here.client(API, "legacy") as older:
            calls = [client.call_tool("get_agent", {"name": "greeter"}) for client in (modern, older) * 10]
            answers = await asyncio.gather(*calls)
        assert [answer.structured_content["version"] for answer in answers] == ["0.1.0"] * 20

    listening(runtime, loaded, act)


@only_sqlite
def test_a_call_that_waits_ends_with_the_architect(runtime: Runtime, loaded: Loaded, ledger: Ledger) -> None:
    waiting: list[asyncio.Task[CallToolResult]] = []

    async def run() -> None:
        tokens = AgentTokens()
        async with architect_listening(runtime, loaded, tokens, api_token=API) as port:
            here = Here(port, tokens)
            given = {"name": "late", "description": "refuse", "wait_seconds": 600}
            waiting.append(asyncio.create_task(here.use(API, "create_agent", **given)))
            await eventually_async(lambda: len(runs(ledger)) == 1)
        [ended] = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(ended, BaseException) or ended.is_error

    asyncio.run(run())
    assert [str(run.status) for run in runs(ledger)] == ["pending"]


def runs(ledger: Ledger) -> list[Run]:
    with ledger.read() as tx:
        return list_runs(tx)


@pytest.fixture
def asking(
    url: str,
    tmp_path: Path,
    model_server: ModelServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Runtime, Loaded]]:
    """A home with a model that answers, and then refuses the key."""
    turns = [say("Ahoy \ud83d"), fail(401, message=f"no key {KEY}")]
    model_server.script("architect", turns)
    (tmp_path / "ratchet.toml").write_text(
        f'[llm]\ndefault = "local/scripted"\n[llm.endpoints.local]\n'
        f'base_url = "{model_server.openai_url("architect")}"\nkey_variable = "MODEL_KEY"\n'
    )
    monkeypatch.setenv("MODEL_KEY", KEY)
    loaded = load(tmp_path, url, **{"agents.port": 0})
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, make_kinds())
        yield runtime, loaded


@pytest.mark.soak
@only_sqlite
@both_eras
def test_an_agent_asks_a_model_without_a_key_of_its_own(asking: tuple[Runtime, Loaded], era: Era) -> None:
    runtime, loaded = asking
    first, _ = greeter(runtime.ledger, loaded.home)

    async def act(here: Here) -> None:
        async with here.client(here.tokens.mint("greeter", first), era) as client:
            given = {"prompt": "Greet me.", "system": "Be rude.", "schema": None, "model": None}
            answer = await client.call_tool("ask_llm", given)
            assert not answer.is_error, words(answer)
            assert answer.structured_content["text"].startswith("Ahoy")
            refused = await client.call_tool("ask_llm", {"prompt": "Greet me."})
        assert refused.is_error
        assert KEY not in words(refused)

    listening(runtime, loaded, act)


WONDER = """
from ratchet.agentkit import ask


@runner.tool
def wonder() -> str:
    return ask("What is the weather like?")


"""


@pytest.mark.soak
@only_sqlite
def test_the_servers_of_an_agent_reach_the_architect_from_their_sandbox(
    asking: tuple[Runtime, Loaded],
) -> None:
    runtime, loaded = asking
    commit = make_agent(runtime.ledger, loaded.home).current or ""
    directory = write_agent(place_of(loaded.home, "greeter").version(commit))
    runner = directory / "runner.py"
    runner.write_text(runner.read_text().replace("if __name__", f"{WONDER}if __name__"))

    async def run() -> None:
        async with hosting(runtime, loaded, api_token=API) as host:
            at = f"{host.url}/agents/greeter"
            answered = await call_tool(f"{at}/runner/mcp", "wonder", {}, 60)
            assert answered.text.startswith("Ahoy"), answered
            told = await call_tool(
                f"{at}/tuner/mcp", "feedback", {"text": "dull", "rating": 1}, 60, token=API
            )
            assert told.text == "sent as 1", told
            with runtime.ledger.read() as tx:
                [remark] = waiting_remarks(tx, get_agent(tx, "greeter").id)
            assert (remark.message, remark.severity, remark.commit) == ("dull", "high", commit)
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {API}"}) as http,
                Client(streamable_http_client(f"{host.url}/architect/mcp", http_client=http)) as client,
            ):
                shown = await client.call_tool("get_agent", {"name": "greeter"})
            assert shown.structured_content["commit"] == commit

    asyncio.run(run())
