"""Servers that misbehave after they have started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers import ServerGaveNoAnswer, call_tool, serving
from ratchet.agents.servers.process import MOST_BYTES
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import HELLO, launch_of, processes_in, soon, write_version

_SECONDS = 30.0
_FAULTY = """
import mmap, os, time
from tiny import serve

def crash():
    os._exit(7)

def hang():
    time.sleep(1000)

def hog():
    kept = [mmap.mmap(-1, 400 * 1024 * 1024)]
    for start in range(0, len(kept[0]), 4096):
        kept[0][start] = 1
    time.sleep(1000)

def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)

serve(crash, hang, hog, bomb)
"""
_FLOOD = """
import threading

def flood():
    while True:
        print("x" * 1000)

for _ in range(8 * 1024):
    print("y" * 1023)
threading.Thread(target=flood, daemon=True).start()
"""
_PARENT = """
import asyncio, sys
from pathlib import Path
from ratchet.agents.servers import serving_pair
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import launch_of

async def main():
    async with serving_pair(launch_of(Path(sys.argv[1])), Agents(network=sys.argv[2] == "True")):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
_DAEMON = """
import subprocess
subprocess.Popen(["sleep", "1000"], start_new_session=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tool", "settings", "told"),
    [
        ("crash", Agents(), "runner.py ended with exit code 7"),
        ("hog", Agents(memory_mb=256), "more than 256 MB of memory (agents.memory_mb)"),
        ("bomb", Agents(processes=8), "more than 8 processes (agents.processes)"),
    ],
)
def test_a_server_that_a_call_brings_down_is_seen_to_have_ended(
    tmp_path: Path, tool: str, settings: Agents, told: str
) -> None:
    directory = write_version(tmp_path / "version", _FAULTY)

    async def ruin() -> tuple[str, str | None]:
        async with serving(launch_of(directory), Role.RUNNER, settings) as server:
            with pytest.raises(ServerGaveNoAnswer):
                await call_tool(server.url, tool, {}, _SECONDS)
            async with asyncio.timeout(_SECONDS):
                return await server.ended(), await server.problem(_SECONDS)

    ended, problem = asyncio.run(ruin())

    assert told in ended
    assert problem == ended
    assert soon(lambda: not processes_in(directory))


def test_a_call_that_is_not_answered_in_time_has_no_answer_and_leaves_the_server_well(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", _FAULTY)

    async def wait() -> str | None:
        async with serving(launch_of(directory), Role.RUNNER, Agents()) as server:
            with pytest.raises(ServerGaveNoAnswer, match=r"did not answer within 0\.2 s"):
                await call_tool(server.url, "hang", {}, 0.2)
            return await server.problem(_SECONDS)

    assert asyncio.run(wait()) is None


@pytest.mark.soak
def test_a_server_that_is_stopped_has_a_problem(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version")

    async def look() -> str | None:
        async with serving(launch_of(directory), Role.RUNNER, Agents()) as server:
            for pid in processes_in(directory):
                os.kill(pid, signal.SIGSTOP)
            return await server.problem(0.3)

    assert "did not answer within 0.3 s" in (asyncio.run(look()) or "")


@pytest.mark.soak
def test_a_server_that_floods_its_output_answers_and_fills_no_disk(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", _FLOOD + HELLO)

    async def call() -> tuple[str, str]:
        async with serving(launch_of(directory), Role.RUNNER, Agents()) as server:
            said = await call_tool(server.url, "hello", {"name": "Ada"}, _SECONDS)
            return said.text, server.log

    text, log = asyncio.run(call())

    kept = sorted((directory / "logs").iterdir())
    assert text == '"hello, Ada"'
    assert len(log) == 16 * 1024
    assert [each.name for each in kept] == ["runner.out", "runner.out.1"]
    assert all(0 < each.stat().st_size <= MOST_BYTES for each in kept)


@pytest.mark.soak
@pytest.mark.parametrize("network", [True, False])
def test_killing_the_process_that_holds_the_servers_ends_all_that_they_started(
    tmp_path: Path, network: bool
) -> None:
    directory = write_version(tmp_path / "version", _DAEMON + HELLO)
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(directory), str(network)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        assert len(processes_in(directory)) >= 5

        parent.kill()

    assert soon(lambda: not processes_in(directory))
