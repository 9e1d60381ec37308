"""Servers that may not reach other machines, nor other programs of this one."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import closing
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

def ratchet():
    return reach(int(os.environ["RATCHET_AGENTS_URL"].rpartition(":")[2]))

def interfaces():
    return [name for _, name in socket.if_nameindex()]

serve(reach, ratchet, interfaces)
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
    found = asyncio.run(_answers(write_version(tmp_path / "version", _REACHES), Agents()))

    assert (found["ratchet"], found["reach"]) == ("I am Ratchet", "I am a database")


def test_without_the_network_a_server_is_reached_and_reaches_ratchet_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its sockets lie there, whose paths are too long to be used as they are.
    temporary = tmp_path / ("t" * 120)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = asyncio.run(_answers(write_version(tmp_path / "version", _REACHES), Agents(network=False)))

    assert found["ratchet"] == "I am Ratchet"
    assert found["reach"] == "refused: Connection refused"
    assert found["interfaces"] == ["lo"]
    assert list(temporary.iterdir()) == []


def test_a_link_that_a_server_puts_in_the_place_of_its_socket_leads_nowhere(tmp_path: Path) -> None:
    async def connect() -> tuple[bytes, int]:
        reached: list[None] = []
        precious = tmp_path / "precious.sock"
        server = await asyncio.start_unix_server(lambda *_: reached.append(None), precious)
        with leased_port() as port:
            async with server, relayed(port, 1) as folder:
                (folder / "server.sock").symlink_to(precious)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with closing(writer):
                    said = await reader.read()
        return said, len(reached)

    assert asyncio.run(connect()) == (b"", 0)


def test_a_relay_refuses_a_port_that_is_taken() -> None:
    async def relay(port: int) -> None:
        async with relayed(port, 1):
            raise AssertionError("it must not begin")

    with socket.create_server(("127.0.0.1", 0)) as foreign, pytest.raises(OSError, match="in use"):
        asyncio.run(relay(foreign.getsockname()[1]))
