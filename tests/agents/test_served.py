"""A server that is killed while it rewrites an agent: what it served is served again, and the work continues."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet.agents.architect import send_feedback
from ratchet.agents.contract import place_of
from ratchet.agents.servers import call_tool
from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.runtime import Runtime
from tests.agents.settled import settle, tree
from tests.agents.test_killed import processes
from tests.runtime.deaths import die_at
from tests.runtime.fleet import REPOSITORY
from tests.waiting import eventually

NAME = "greeter"


@contextmanager
def serving(home: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.server.server_process", str(home), url]
    with (home / "server.log").open("a") as log:
        server = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http"), (home / "server.log").read_text()
        yield server
    finally:
        server.kill()
        server.communicate()


def greeting(home: Path) -> str:
    url = json.loads((home / "agents" / "host.json").read_text())["url"]
    address = f"{url}/agents/{NAME}/runner/mcp"
    called = asyncio.run(call_tool(address, "greet", {"name": "Ada"}, 60))
    assert not called.failed, called.text
    return called.text


@pytest.mark.soak
@pytest.mark.parametrize("place", ["in the session", "checking", "placed"])
def test_a_server_killed_while_it_rewrites_an_agent_serves_it_again_and_finishes(
    place: str, runtime: Runtime, ledger: Ledger, url: str
) -> None:
    home = runtime.home
    first = settle(runtime)
    with serving(home, url) as server:
        assert greeting(home) == "hello, Ada"
        die_at(home, place, with_parent=True)
        run_id = send_feedback(runtime, NAME, "say ahoy", about=["greet"], actor="test")
        assert server.wait(60) == -9
    eventually(lambda: processes(home) == [])

    with serving(home, url):
        assert greeting(home) in ("hello, Ada", "ahoy, Ada")
        eventually(lambda: status(ledger, run_id).final)
        assert status(ledger, run_id) is RunStatus.COMPLETED
        eventually(lambda: greeting(home) == "ahoy, Ada")
    with ledger.read() as tx:
        second = get_run(tx, run_id).result["commit"]
    assert tree(place_of(home, NAME).root) == {"repo.git", "states", first, second}
    eventually(lambda: processes(home) == [])


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status
