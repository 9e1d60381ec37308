"""`ratchet mcp` over stdio: a real client starts it, and nothing of it is left when the client is gone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ratchet.cli import run
from tests.server.mcp.conftest import PROJECT_TOKEN, World, text_of, told
from tests.server.mcp.programs import SOURCE, command, environment, over_stdio
from tests.waiting import eventually

pytestmark = pytest.mark.soak
# A client that says hello, asks for something that takes long, and then does nothing more.
_CLIENT = """
import asyncio, sys
from mcp import Client
from tests.server.mcp.programs import over_stdio
from pathlib import Path

async def ask():
    async with Client(over_stdio(Path(sys.argv[1]))) as client:
        print((await client.list_tools()).tools[0].name, flush=True)
        await client.call_tool("wait_for_run", {"run_id": int(sys.argv[2]), "seconds": 3600})

asyncio.run(ask())
"""


def test_a_client_that_starts_it_is_answered_with_what_it_may_see(world: World) -> None:
    token = world.home / "project-token"
    token.write_text(PROJECT_TOKEN + "\n")

    async def ask() -> tuple[set[str], str, str]:
        async with Client(over_stdio(world.home, "--project-token-file", str(token))) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            given = {"protocol_id": world.guarded["protocol"]}
            seen = told(await client.call_tool("get_protocol", given))
            refused = await client.call_tool("start_protocol", given)
            return tools, seen["protocol_name"], text_of(refused)

    tools, name, refusal = asyncio.run(ask())
    assert "get_protocol" in tools
    assert "start_protocol" not in tools
    assert name == "0001-change"
    assert "--allow-actions" in refusal


def test_only_the_protocol_is_on_stdout_and_the_end_of_stdin_ends_it(world: World) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "list_runs", "arguments": {}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [json.dumps(hello), json.dumps(ready), "this is no JSON", json.dumps(call)]
    process = subprocess.Popen(
        command(world.home, "--log-level", "debug"),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.flush()
    answers: list[dict[str, Any]] = []
    while not any(answer.get("id") == 2 for answer in answers):
        answers.append(json.loads(process.stdout.readline()))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert answers[0]["result"]["serverInfo"]["name"] == "ratchet"
    assert "path=/runs" in err


def lives(process: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_client_that_is_killed_leaves_no_process_behind(world: World) -> None:
    endless = world.run("never ends")
    client = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(world.home), str(endless)],
        env={**environment(), "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    assert client.stdout.readline().strip()
    (server,) = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
    client.kill()
    client.communicate(timeout=60)
    eventually(lambda: not lives(server))


def test_without_a_ledger_it_says_so_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--home", str(tmp_path / "nothing"), "mcp"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "ratchet init" in told.err


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "1"],
        ["--host", "127.0.0.1"],
        ["--http", "--project-token-file", "token"],
        ["--project-token-file", "nothing-there"],
        ["--http", "--host", "no.such.host.invalid"],
    ],
)
def test_options_that_cannot_be_meant_are_told(
    world: World, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--home", str(world.home), "mcp", *options]) == 2
    assert "hint: " in capsys.readouterr().err
