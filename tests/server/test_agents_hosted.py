"""`serve` is also the host of the agents of its home."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from ratchet.agents.client import Callee, call
from ratchet.config import Loaded
from ratchet.runtime import Kinds, Runtime, open_ledger, open_runtime
from tests.agents.host.homes import Home, said
from tests.runtime.worker_process import load
from tests.server.conftest import Start
from tests.waiting import eventually_async

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.mark.soak
def test_serve_answers_for_the_agents_of_its_home_and_ends_them(
    start_server: Start, runtime: Runtime, loaded: Loaded, url: str, tmp_path: Path
) -> None:
    home = Home(runtime, loaded)
    home.make_agent()
    server = start_server(url)
    agents = json.loads((tmp_path / "agents" / "host.json").read_text())["url"]
    assert asyncio.run(said(agents)) == "one"
    assert server.client.get("/agents/greeter").json()["serving"][0]["servers"]["runner"]["state"] == "up"
    code, _ = server.stop()
    assert (code, "Traceback" in server.words) == (0, False), server.words
    assert home.processes() == []


@pytest.mark.soak
def test_an_agent_is_called_from_another_home_at_the_host_that_has_it(
    start_server: Start, runtime: Runtime, loaded: Loaded, url: str, tmp_path: Path
) -> None:
    elsewhere = load(tmp_path / "elsewhere", url, **{"runtime.dead_after_seconds": 60.0})
    start_server(url)
    # Made after its host has begun, which therefore has not said yet that it is there.
    Home(runtime, loaded).make_agent()
    with open_ledger(elsewhere) as ledger:
        asking = open_runtime(elsewhere, ledger, Kinds())
        answer = asyncio.run(call(asking, elsewhere, Callee("greeter"), "say", lambda _: {}))
    assert answer.structured["result"] == "one"
    assert not (tmp_path / "elsewhere" / "agents" / "greeter").exists()


@pytest.mark.soak
def test_a_second_server_on_a_home_leaves_its_agents_to_the_first_until_that_ends(
    start_server: Start, runtime: Runtime, loaded: Loaded, url: str, tmp_path: Path
) -> None:
    home = Home(runtime, loaded)
    home.make_agent()
    first, second = start_server(url), start_server(url)
    assert "standing by" in second.words
    first.process.kill()

    asyncio.run(eventually_async(lambda: "serving its agents now" in second.words))
    agents = json.loads((tmp_path / "agents" / "host.json").read_text())["url"]
    assert asyncio.run(said(agents)) == "one"
    assert second.stop()[0] == 0
    assert home.processes() == []


@pytest.mark.soak
def test_a_port_of_agents_that_is_taken_ends_the_server_with_the_way_out(
    start_server: Start, url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start_server(url, f"agents.port={taken.getsockname()[1]}", wait=False)
        assert server.process.wait(60) == 1
    assert "RATCHET_AGENTS__PORT=0 ratchet serve" in server.words
    assert "Traceback" not in server.words
