"""Servers that crash, hang or cannot start, a host that is killed, and a ledger that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agents.addresses import announced
from ratchet.agents.host import hosting
from ratchet.agents.servers import ServerGaveNoAnswer
from ratchet.agents.views import one_agent
from ratchet.ledger.agents import get_agent, quarantine_version, release_version
from ratchet.runtime import open_ledger, open_runtime
from tests.agents.host.conftest import MakeHome
from tests.agents.host.homes import CANNOT_START, NAME, QUICK, Home, call, said
from tests.agents.servers.versions import processes_in
from tests.postgres import PostgresServer
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually_async

REPOSITORY = Path(__file__).parents[3]
on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


async def crash(url: str | None, **arguments: int) -> None:
    with pytest.raises(ServerGaveNoAnswer):
        await call(url, "crash", **arguments)


POISONED = """
import os
from tiny import serve

def divide(by):
    return 42 // by if by else os._exit(7)

serve(divide)
"""


async def crash_alone(home: Home, url: str | None) -> None:
    """Have the server end when no call is under way."""
    before = len(home.told("crashed"))
    await call(url, "crash_later")
    await eventually_async(lambda: len(home.told("crashed")) > before)


@pytest.mark.soak
@on_sqlite
def test_a_crashed_server_is_started_again_and_calls_wait_for_it(home: Home) -> None:
    commit = home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await crash(host.url)
            assert await said(host.url) == "one"
            [version] = host.status()["agents"][0]["versions"]
            assert {name: each["restarts"] for name, each in version["servers"].items()} == {
                "runner": 1,
                "tuner": 0,
            }

    asyncio.run(scenario())
    [crashed] = home.told("crashed")
    assert (crashed["agent"], crashed["commit"], crashed["server"]) == ("greeter", commit, "runner")
    assert "7" in crashed["reason"]


@on_sqlite
def test_poison_calls_are_fenced_off_and_the_agent_goes_on(home: Home) -> None:
    commit = home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            for number in range(6):
                await crash(host.url, dose=number // 2)
                await eventually_async(lambda number=number: len(home.told("crashed")) == min(number + 1, 3))
                assert await said(host.url) == "one"
            with pytest.raises(ServerGaveNoAnswer, match="crash ended its server 3 times"):
                await call(host.url, "crash", dose=100)
            [version] = host.status()["agents"][0]["versions"]
            assert (version["servers"]["runner"]["fenced"], version["servers"]["runner"]["restarts"]) == (
                ["crash"],
                3,
            )
            with home.runtime.ledger.read() as tx:
                found = one_agent(tx, home.loaded.home, home.loaded.settings.agents, NAME)
            assert "runner.crash ended its server again and again" in found.trouble[0]

    asyncio.run(scenario())
    assert home.current() == commit
    assert home.told("quarantined") == []


@on_sqlite
def test_a_call_that_ended_the_server_twice_is_not_let_in_again_but_others_of_the_tool_are(
    make_home: MakeHome,
) -> None:
    home = make_home(crashes=9)
    home.make_agent(runner=POISONED)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            for number in range(2):
                with pytest.raises(ServerGaveNoAnswer):
                    await call(host.url, "divide", by=0)
                # Until that is known the next call may come to the server that is ending, which it does not end.
                await eventually_async(lambda number=number: len(home.told("crashed")) == number + 1)
            with pytest.raises(ServerGaveNoAnswer, match="this call of divide ended its server 2 times"):
                await call(host.url, "divide", by=0)
            assert (await call(host.url, "divide", by=2)).structured == {"result": 21}

    asyncio.run(scenario())
    assert len(home.told("crashed")) == 2


@on_sqlite
def test_an_agent_that_is_given_up_says_so_where_it_is_shown(home: Home) -> None:
    commit = home.make_agent()
    with home.runtime.ledger.write() as tx:
        quarantine_version(tx, get_agent(tx, NAME), commit, "its runner crashed 4 times")
    with home.runtime.ledger.read() as tx:
        found = one_agent(tx, home.loaded.home, home.loaded.settings.agents, NAME)
    assert "is quarantined, and every call of it is refused: its runner crashed 4 times" in found.trouble[0]


@pytest.mark.soak
@on_sqlite
def test_a_version_that_keeps_crashing_is_quarantined_and_the_last_good_one_answers(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two")
    home.move(second)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            for _ in range(3):
                assert await said(host.url) == "two"
                await crash_alone(home, host.url)
            # No call is lost on the way back: this one waits for the older version.
            assert await said(host.url) == "one"
            with pytest.raises(ServerGaveNoAnswer, match="quarantined"):
                await said(host.url, version=second)

    asyncio.run(scenario())
    assert home.current() == first
    assert [each["commit"] for each in home.told("quarantined")] == [second]
    [fell_back] = home.told("fell_back")
    assert (fell_back["from"], fell_back["to"]) == (second, first)


@pytest.mark.soak
@on_sqlite
def test_the_only_version_says_why_it_is_quarantined_until_a_person_releases_it(home: Home) -> None:
    commit = home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            for _ in range(3):
                assert await said(host.url) == "one"
                await crash_alone(home, host.url)
            with pytest.raises(ServerGaveNoAnswer, match="quarantined: its runner crashed 3 times"):
                await said(host.url)
            with home.runtime.ledger.write() as tx:
                release_version(tx, get_agent(tx, "greeter"), commit)
            await eventually_async(
                lambda: host.status()["agents"][0]["versions"][0]["state"] != "quarantined"
            )
            assert await said(host.url) == "one"

    asyncio.run(scenario())
    assert home.current() == commit


@pytest.mark.soak
@on_sqlite
def test_a_version_that_cannot_start_never_gets_the_address(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", runner=CANNOT_START)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            home.move(second)
            while not home.told("fell_back"):
                assert await said(host.url) == "one"
            assert await said(host.url) == "one"
            await eventually_async(lambda: host.status()["agents"][0]["current"] == first)

    asyncio.run(scenario())
    assert home.current() == first
    assert "nothing to say" in home.told("quarantined")[0]["reason"]
    assert [each for each in home.told("started") if each["commit"] == second] == []


@pytest.mark.soak
@on_sqlite
def test_a_server_that_hangs_is_started_again(make_home: MakeHome) -> None:
    home = make_home(health_seconds=0.2, health_failures=2)
    commit = home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            for pid in processes_in(home.directory(commit)):
                os.kill(pid, signal.SIGSTOP)
            await eventually_async(lambda: bool(home.told("crashed")))
            assert await said(host.url) == "one"

    asyncio.run(scenario())
    assert "2 looks in a row failed" in home.told("crashed")[0]["reason"]


@pytest.mark.soak
def test_a_killed_host_leaves_no_process_and_the_next_one_restores(
    home: Home, url: str, tmp_path: Path
) -> None:
    home.make_agent()
    command = [sys.executable, "-m", "tests.agents.host.host_process", str(tmp_path), url]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline().strip()

        async def scenario() -> None:
            try:
                assert await said(told) == "one"
                assert announced(tmp_path) == told
                assert home.processes()
            finally:
                process.kill()
                process.wait()
            await eventually_async(lambda: not home.processes())
            assert announced(tmp_path) is None
            before = len(home.told("started"))
            async with hosting(home.runtime, home.loaded) as host:
                await eventually_async(lambda: len(home.told("started")) > before)
                assert await said(host.url) == "one"

        asyncio.run(scenario())
    assert home.processes() == []


@pytest.mark.soak
def test_agents_answer_while_the_ledger_is_away_and_follow_it_when_it_is_back(tmp_path: Path) -> None:
    with PostgresServer() as database:
        loaded = load(tmp_path, database.create_database(), **QUICK)
        with open_ledger(loaded) as ledger:
            runtime = open_runtime(loaded, ledger, make_kinds())
            home = Home(runtime, loaded)
            home.make_agent("one")
            second = home.make_version("two")

            async def scenario() -> None:
                async with hosting(runtime, loaded) as host:
                    assert await said(host.url) == "one"
                    await asyncio.to_thread(database.stop)
                    assert await said(host.url) == "one"
                    await crash(host.url)
                    assert await said(host.url) == "one"
                    await asyncio.to_thread(database.start)
                    await asyncio.to_thread(home.move, second)
                    await eventually_async(lambda: host.status()["agents"][0]["current"] == second)
                    assert await said(host.url) == "two"
                    await eventually_async(lambda: bool(home.told("crashed")))

            asyncio.run(scenario())
