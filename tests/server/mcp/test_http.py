"""`ratchet mcp --http`: only for those with a token, only under its own address, and ended by a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ratchet.cli import run
from ratchet.server.project_scope import ALLOWED
from ratchet.server.service import HEADER
from tests.server.mcp.conftest import PROJECT_TOKEN, World, text_of, told
from tests.server.mcp.programs import command, environment

pytestmark = pytest.mark.soak
T = TypeVar("T")


class Served:
    """The server in a process of its own, and what its token is."""

    def __init__(self, world: World) -> None:
        self.log = (world.home / "mcp.log").open("w")
        self.process = subprocess.Popen(
            command(world.home, "--http", "--port", "0", "--allow-actions", "--json"),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        answering = json.loads(self.process.stdout.readline())
        self.url: str = answering["url"]
        self.token = (world.home / "token").read_text().strip()
        assert answering["token_file"] == str(world.home / "token")

    def use(self, task: Callable[[Client], Awaitable[T]], token: str, **headers: str) -> T:
        async def connected() -> T:
            async with self._client({"Authorization": f"Bearer {token}", **headers}) as client:
                return await task(client)

        return asyncio.run(connected())

    @asynccontextmanager
    async def _client(self, headers: dict[str, str]) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


@pytest.fixture(scope="module")
def served(world: World) -> Iterator[Served]:
    server = Served(world)
    yield server
    server.close()


def test_whoever_brings_the_token_can_look_and_act(served: Served, world: World) -> None:
    async def act(client: Client) -> tuple[str, str]:
        wanted = {"project_id": world.open["project"], "protocol_name": "0003-http"}
        made = told(await client.call_tool("create_protocol", wanted))
        resource = await client.read_resource(f"ratchet://protocols/{made['id']}")
        return made["protocol_name"], json.loads(resource.contents[0].text)["protocol_name"]  # type: ignore[union-attr]

    assert served.use(act, served.token) == ("0003-http", "0003-http")


def test_the_token_of_a_project_opens_that_project_alone(served: Served, world: World) -> None:
    async def look(client: Client) -> dict[str, Any]:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        own = await client.call_tool("get_protocol", {"protocol_id": world.guarded["protocol"]})
        other = await client.call_tool("get_protocol", {"protocol_id": world.open["protocol"]})
        agents = await client.call_tool("list_agents", {})
        listed = told(await client.call_tool("list_protocols", {}))
        return {"tools": tools, "own": own, "other": other, "agents": agents, "listed": listed["items"]}

    seen = served.use(look, PROJECT_TOKEN)
    assert told(seen["own"])["id"] == world.guarded["protocol"]
    assert seen["other"].is_error
    assert seen["agents"].is_error
    assert [each["id"] for each in seen["listed"]] == [world.guarded["protocol"]]
    assert {"get_protocol", "start_protocol", "read_protocol_log", "wait_for_run"} <= seen["tools"]
    assert {"list_agents", "register_project", "run_tool"}.isdisjoint(seen["tools"])
    assert ("GET", "/agents") not in ALLOWED


def test_the_operator_sees_a_guarded_project_only_with_its_token(served: Served, world: World) -> None:
    async def look(client: Client) -> Any:
        return await client.call_tool("get_protocol", {"protocol_id": world.guarded["protocol"]})

    refused = served.use(look, served.token)
    assert HEADER in text_of(refused)
    assert told(served.use(look, served.token, **{HEADER: PROJECT_TOKEN}))["id"] == world.guarded["protocol"]


def test_strangers_and_pages_under_another_name_are_refused(served: Served) -> None:
    right = {"Authorization": f"Bearer {served.token}", "Accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    port = served.url.split(":")[2].partition("/")[0]

    def status(path: str = "/mcp", **headers: str) -> int:
        url = served.url.removesuffix("/mcp") + path
        return httpx.post(url, json=ping, headers={**right, **headers}, trust_env=False).status_code

    assert status() < 400
    assert status(Host=f"localhost:{port}") < 400
    assert status(Authorization="Bearer wrong") == 401
    assert status(Authorization="") == 401
    assert status(Host="evil.example") == 421
    assert status(Host=f"evil.example:{port}") == 421
    assert status(Origin="http://evil.example") == 403
    assert [status(path) for path in ("/", "/health", "/console", "/runs", "/mcp/")] == [404] * 5


def test_a_port_that_is_taken_is_told(
    served: Served, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    port = served.url.split(":")[2].partition("/")[0]
    assert run(["--home", str(world.home), "mcp", "--http", "--port", port]) == 1
    assert f"port {port} of 127.0.0.1 is taken" in capsys.readouterr().err


@pytest.fixture
def served_alone(world: World) -> Iterator[Served]:
    """One of its own, for a test that ends it."""
    server = Served(world)
    yield server
    server.close()


def test_a_signal_ends_it_also_while_somebody_waits(served_alone: Served, world: World) -> None:
    served = served_alone
    endless = world.run("never ends")

    async def wait(client: Client) -> Any:
        waiting = asyncio.create_task(client.call_tool("wait_for_run", {"run_id": endless, "seconds": 3600}))
        # What is asked later on the same connection is answered: the first is under way.
        await client.call_tool("get_run", {"run_id": endless})
        served.process.send_signal(signal.SIGTERM)
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    ended = served.use(wait, served.token)
    assert isinstance(ended, Exception) or ended.is_error
    assert served.process.wait(60) == 0
