"""What was acknowledged is in the state exactly once: under load, over swaps and a migration, with hosts killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ratchet.agents.addresses import announced
from ratchet.agents.contract import place_of
from ratchet.agents.stores import AgentStates, Succession
from tests.agents.gateway.wire import read_message
from tests.agents.host.homes import NAME, Home
from tests.waiting import eventually, eventually_async

REPOSITORY = Path(__file__).parents[3]
CLIENTS = 8
# A number that comes again was not acknowledged, but may have been stored.
COUNTER = """
from pathlib import Path
from ratchet.agentkit import StateStore
from tiny import serve

def count(client, number):
    with StateStore(Path.cwd()) as state:
        counts = {counts}
        if counts.get(client, 0) < number:
            counts[client] = number
            counts["total"] = counts.get("total", 0) + 1
    return {version}

serve(count)
"""
NESTED = "def migrate(state):\n    return {'counts': state}\n"


class Host:
    """A process that serves the agents of a home, and that can be killed."""

    def __init__(self, home: Home, url: str) -> None:
        command = [sys.executable, "-m", "tests.agents.host.host_process", str(home.loaded.home), url]
        self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("http")

    def kill(self, home: Home) -> None:
        self._process.kill()
        self._process.communicate()
        eventually(lambda: not home.processes())


async def count(home: Path, client: str, most: int, acknowledged: dict[str, int]) -> None:
    """Have numbers stored one after the other; one that is not acknowledged is brought again."""
    while acknowledged[client] < most:
        with contextlib.suppress(OSError, EOFError, asyncio.IncompleteReadError):
            place = urlsplit(announced(home) or "http://127.0.0.1:9")
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            try:
                while acknowledged[client] < most:
                    number = acknowledged[client] + 1
                    asked = {"name": "count", "arguments": {"client": client, "number": number}}
                    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked})
                    head = f"POST /agents/{NAME}/runner/mcp HTTP/1.1\r\nhost: {place.netloc}\r\n"
                    writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
                    answer = await read_message(reader)
                    if answer.status != 200:
                        break
                    acknowledged[client] = number
            finally:
                writer.close()
        await asyncio.sleep(0.02)


def make_versions(home: Home, number: int) -> list[str]:
    """Versions of a counter. From the middle on they want their counts one level deeper."""
    flat, deep = "state", "state.setdefault('counts', {})"
    runner = COUNTER.format(counts=flat, version=0)
    commits = [home.make_agent(runner=runner)]
    for each in range(1, number):
        counts = flat if each < number // 2 else deep
        commits.append(home.make_version(str(each), runner=COUNTER.format(counts=counts, version=each)))
    states = AgentStates(place_of(home.loaded.home, NAME))
    states.adopt(commits[0], commits[0])
    middle = commits[number // 2]
    (home.directory(middle) / "migrate.py").write_text(NESTED)
    states.begin(home.directory(middle), middle, {"counts": {}}, "test")
    states.plan(middle, Succession(store=commits[0], parent=commits[number // 2 - 1]))
    for each in commits[number // 2 + 1 :]:
        states.lead(home.directory(each), middle)
    return commits


def check_exact(home: Home, url: str, *, swaps: int, writes: int, kills: int) -> None:
    commits = make_versions(home, swaps + 1)
    acknowledged = {f"client {number}": 0 for number in range(CLIENTS)}
    most, host = writes // CLIENTS, Host(home, url)

    async def scenario() -> None:
        nonlocal host
        async with asyncio.TaskGroup() as group:
            for client in acknowledged:
                group.create_task(count(home.loaded.home, client, most, acknowledged))
            for number, commit in enumerate(commits[1:], 1):
                wanted = writes * number // (len(commits) + 1)
                await eventually_async(lambda wanted=wanted: sum(acknowledged.values()) >= wanted)
                home.move(commit)
                if number % max(1, swaps // kills) == 0:
                    # In the middle of the swap, or soon behind it.
                    await asyncio.to_thread(host.kill, home)
                    host = await asyncio.to_thread(Host, home, url)

    try:
        asyncio.run(scenario())
    finally:
        host.kill(home)
    stored = home.state(commits[-1])["counts"]
    assert stored == {**acknowledged, "total": most * CLIENTS}
    assert home.current() == commits[-1]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_every_acknowledged_write_is_stored_once_over_swaps_and_a_kill(home: Home, url: str) -> None:
    check_exact(home, url, swaps=2, writes=160, kills=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_ten_thousand_acknowledged_writes_are_stored_once_over_twenty_swaps(home: Home, url: str) -> None:
    check_exact(home, url, swaps=20, writes=10_000, kills=5)
