"""Servers that may not reach other machines, nor other programs of this one."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers import call_tool, serving
from ratchet.agents.servers.process import relayed
from ratchet.agents.servers.server import leased_port
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import launch_of, write_version

_SECONDS = 20.0
_REACHES = """
import os, socket
from tiny import serve

def reach(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            return connection.recv(100).decode()
    except OSError as error:
        return f"refused: {error.strerror}"

def by_proxy(url):
    import urllib.request, urllib.error
    try:
        return urllib.request.urlopen(url, timeout=60).read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"

def imported(*_, **names):
    import importlib
    found = []
    for name in names["names"]:
        try:
            importlib.import_module(name)
            found.append(name)
        except ImportError:
            pass
    return found

def ratchet():
    return reach(int(os.environ["RATCHET_AGENTS_URL"].rpartition(":")[2]))

def interfaces():
    return [name for _, name in socket.if_nameindex()]

serve(reach, ratchet, interfaces, by_proxy, imported)
"""


async def _greeter(greeting: bytes) -> asyncio.Server:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(greet, "127.0.0.1", 0)


async def _answers(directory: Path, settings: Agents) -> dict[str, Any]:
    ratchet, other = await _greeter(b"I am Ratchet"), await _greeter(b"I am a database")
    async with ratchet, other:
        port, other_port = (each.sockets[0].getsockname()[1] for each in (ratchet, other))
        async with serving(launch_of(directory, architect_port=port), Role.RUNNER, settings) as server:
            wanted = {"ratchet": {}, "reach": {"port": other_port}, "interfaces": {}}
            return {
                tool: (await call_tool(server.url, tool, given, _SECONDS)).structured["result"]
                for tool, given in wanted.items()
            }


def test_with_the_network_a_server_reaches_what_is_on_this_machine(tmp_path: Path) -> None:
    found = asyncio.run(_answers(write_version(tmp_path / "version", _REACHES), Agents(network=True)))

    assert (found["ratchet"], found["reach"]) == ("I am Ratchet", "I am a database")


def test_without_the_network_a_server_is_reached_and_reaches_ratchet_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its sockets lie there, whose paths are too long to be used as they are.
    temporary = tmp_path / ("t" * 120)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = asyncio.run(_answers(write_version(tmp_path / "version", _REACHES), Agents()))

    assert found["ratchet"] == "I am Ratchet"
    assert found["reach"] == "refused: Connection refused"
    assert found["interfaces"] == ["lo"]
    assert list(temporary.iterdir()) == []


def test_a_server_starts_where_ratchet_has_a_port_that_only_root_may_take(tmp_path: Path) -> None:
    launch = launch_of(write_version(tmp_path / "version", _REACHES), architect_port=80)

    async def interfaces() -> list[str]:
        async with serving(launch, Role.RUNNER, Agents()) as server:
            called = await call_tool(server.url, "interfaces", {}, _SECONDS)
        return list(called.structured["result"])

    assert asyncio.run(interfaces()) == ["lo"]


def test_a_link_that_a_server_puts_in_the_place_of_its_socket_leads_nowhere(tmp_path: Path) -> None:
    async def connect() -> int:
        reached: list[None] = []
        precious = tmp_path / "precious.sock"
        server = await asyncio.start_unix_server(lambda *_: reached.append(None), precious)
        with leased_port() as port:
            async with server, relayed(port, 1) as folder:
                (folder / "server.sock").symlink_to(precious)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with closing(writer), pytest.raises(ConnectionResetError):
                    await reader.read()
        return len(reached)

    assert asyncio.run(connect()) == 0


def test_a_relay_refuses_a_port_that_is_taken() -> None:
    async def relay(port: int) -> None:
        async with relayed(port, 1):
            raise AssertionError("it must not begin")

    with socket.create_server(("127.0.0.1", 0)) as foreign, pytest.raises(OSError, match="in use"):
        asyncio.run(relay(foreign.getsockname()[1]))


def test_a_server_imports_the_kit_and_what_it_needs_and_nothing_else_of_ratchets(tmp_path: Path) -> None:
    ours = [
        "ratchet.agentkit",
        "mcp",
        "pydantic",
        "jsonschema",
        "sqlalchemy",
        "fastapi",
        "numpy",
        "ratchet.ledger",
    ]

    async def ask() -> Any:
        directory = write_version(tmp_path / "version", _REACHES)
        async with serving(launch_of(directory), Role.RUNNER, Agents()) as server:
            return (await call_tool(server.url, "imported", {"names": ours}, _SECONDS)).structured["result"]

    assert asyncio.run(ask()) == ours[:4]


def test_a_server_reaches_what_its_agent_is_allowed_from_one_connection_to_the_next(tmp_path: Path) -> None:
    allowed: list[str] = []

    async def may() -> list[str]:
        return allowed

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        body = asked.split(b"\r\n")[0]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    async def ask() -> list[str]:
        web = await asyncio.start_server(answer, "127.0.0.2", 0)
        port = web.sockets[0].getsockname()[1]
        launch = replace(launch_of(write_version(tmp_path / "version", _REACHES)), allowed=may)
        async with web, serving(launch, Role.RUNNER, Agents()) as server:
            said = []
            for targets in ([], [f"127.0.0.2:{port}"], ["localhost", "metadata.internal"]):
                allowed[:] = targets
                url = f"http://127.0.0.2:{port}/a?b"
                answered = await call_tool(server.url, "by_proxy", {"url": url}, _SECONDS)
                said.append(answered.structured["result"])
        return said

    first, second, third = asyncio.run(ask())

    assert "403 agent greeter may not connect to 127.0.0.2" in first
    assert second == "GET /a?b HTTP/1.1"
    assert third == first
