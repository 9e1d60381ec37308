"""Being the host: what is restored, what is started on demand, who may be it, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.host import hosting, reached
from ratchet.agents.servers import ServerGaveNoAnswer, call_tool
from ratchet.kernel import Conflict
from ratchet.ledger.agents import delete_agent, get_agent
from ratchet.ledger.evals import list_calls
from tests.agents.host.conftest import MakeHome
from tests.agents.host.homes import NAME, Home, call, said, url_of
from tests.waiting import eventually_async

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def states(host_status: dict[str, object]) -> dict[str, list[str]]:
    agents = host_status["agents"]
    assert isinstance(agents, list)
    return {each["agent"]: [version["state"] for version in each["versions"]] for each in agents}


@pytest.mark.soak
def test_a_host_restores_all_agents_and_leaves_nothing_behind(home: Home) -> None:
    home.make_agent("one", "first")
    home.make_agent("two", "second")

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded, api_token="of the home") as host:
            await eventually_async(lambda: states(host.status()) == {"first": ["up"], "second": ["up"]})
            assert await said(host.url, name="second") == "two"
            tuner = url_of(host.url, name="first", role=Role.TUNER)
            with pytest.raises(ServerGaveNoAnswer, match="wants a key"):
                await call_tool(tuner, "feedback", {"text": "good"}, 60)
            answer = await call_tool(tuner, "feedback", {"text": "good"}, 60, token="of the home")
            assert answer.structured == {"result": "good"}
            announced = json.loads((home.loaded.home / "agents" / "host.json").read_text())
            assert announced["url"] == host.url
            assert home.processes("first")

    asyncio.run(scenario())
    assert [home.processes(name) for name in ("first", "second")] == [[], []]
    assert not (home.loaded.home / "agents" / "host.json").exists()
    assert len(home.told("started")) == len(home.told("stopped")) == 2


def test_calls_are_recorded_with_their_version_and_their_answer(home: Home) -> None:
    commit = home.make_agent("one")

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await call(host.url, "say", mood="glad", password="hunter2")

    asyncio.run(scenario())
    with home.runtime.ledger.read() as tx:
        [found] = list_calls(tx, get_agent(tx, NAME).id)
    assert (found.commit, found.server, found.tool, found.outcome) == (commit, "runner", "say", "ok")
    assert (found.arguments, found.is_whole) == ({"mood": "glad", "password": "********"}, False)
    assert found.result["structured"] == {"result": "one"}


@pytest.mark.soak
def test_an_idle_version_is_stopped_and_one_start_serves_all_who_then_call(make_home: MakeHome) -> None:
    home = make_home(idle_seconds=3)
    home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await eventually_async(lambda: bool(home.told("stopped")))
            assert home.processes() == []
            words = await asyncio.gather(*(said(host.url) for _ in range(5)))
            assert words == ["one"] * 5
            # Its other server may come up a little later.
            await eventually_async(lambda: len(home.told("started")) > 1)

    asyncio.run(scenario())
    assert len(home.told("started")) == 2
    assert home.told("stopped")[0]["why"] == "idle"


@pytest.mark.soak
def test_a_version_can_be_named_and_is_started_for_it(home: Home) -> None:
    home.make_agent("one")
    other = home.make_version("other")

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url, version=other) == "other"
            assert await said(host.url, version=other[:8]) == "other"
            assert await said(host.url, version="latest") == await said(host.url) == "one"
            for unknown, reason in (
                ("deadbeef", "does not exist"),
                ("0.0.0", "names 2 versions"),
                ("nonsense", "does not name"),
            ):
                with pytest.raises(ServerGaveNoAnswer, match=reason):
                    await said(host.url, version=unknown)
            with pytest.raises(ServerGaveNoAnswer, match="agent nobody does not exist"):
                await said(host.url, name="nobody")

    asyncio.run(scenario())


@pytest.mark.soak
def test_a_deleted_agent_is_stopped_and_its_name_can_be_used_again(home: Home) -> None:
    home.make_agent("one")

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            # The Runner answers before the Tuner is up, and only a version that was up is told to have stopped.
            await eventually_async(lambda: home.told("started") != [])
            with home.runtime.ledger.write() as tx:
                delete_agent(tx, get_agent(tx, "greeter"))
            await eventually_async(lambda: not home.processes())
            with pytest.raises(ServerGaveNoAnswer, match="does not exist"):
                await said(host.url)
            home.make_agent("another")
            assert await said(host.url) == "another"

    asyncio.run(scenario())
    assert home.told("stopped")[0]["why"] == "deleted"


def test_an_agent_that_becomes_ready_is_started_without_being_called(home: Home) -> None:
    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded):
            home.make_agent()
            await eventually_async(lambda: len(home.told("started")) == 1)

    asyncio.run(scenario())


@pytest.mark.soak
def test_a_second_host_stands_by_and_takes_over(home: Home, make_home: MakeHome) -> None:
    home.make_agent()
    second_home = make_home()

    async def scenario() -> None:
        async with AsyncExitStack() as first_stack, AsyncExitStack() as second_stack:
            first = await first_stack.enter_async_context(hosting(home.runtime, home.loaded))
            second = await second_stack.enter_async_context(hosting(second_home.runtime, second_home.loaded))
            assert (first.is_active, second.is_active, second.url) == (True, False, first.url)
            async with reached(second_home.runtime, second_home.loaded) as found:
                url = found.url
                assert url == first.url
            await first_stack.aclose()
            await eventually_async(lambda: second.is_active and bool(second.status()["agents"]))
            assert second.url != first.url
            assert await said(second.url) == "one"

    asyncio.run(scenario())
    assert home.processes() == []


def test_without_a_host_one_serves_the_block_and_starts_only_what_is_called(home: Home) -> None:
    home.make_agent("one")
    home.make_agent("two", "other")

    async def scenario() -> None:
        async with reached(home.runtime, home.loaded) as found:
            url = found.url
            assert await said(url) == "one"
            assert home.processes("other") == []
            assert not (home.loaded.home / "agents" / "host.json").exists()

    asyncio.run(scenario())
    assert home.processes() == []


def test_a_taken_port_is_said_and_nothing_is_left_open(make_home: MakeHome) -> None:
    async def scenario() -> None:
        taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        home = make_home(port=port)
        with pytest.raises(Conflict, match=f"port {port}"):
            async with hosting(home.runtime, home.loaded):
                pytest.fail("it must not begin")
        taken.close()
        await taken.wait_closed()
        async with hosting(home.runtime, home.loaded) as host:
            assert host.url == f"http://127.0.0.1:{port}"

    asyncio.run(scenario())


@pytest.mark.soak
def test_calls_in_flight_are_answered_when_the_host_ends(home: Home) -> None:
    commit = home.make_agent()

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            late = asyncio.create_task(call(host.url, "note", key="late", seconds=0.5))
            await eventually_async(lambda: home.has_begun(commit))
        assert (await late).structured == {"result": "late"}

    asyncio.run(scenario())
