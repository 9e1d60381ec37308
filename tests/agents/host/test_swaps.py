"""Moving an address to another version while it is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ratchet.agents.contract import place_of
from ratchet.agents.host import hosting
from ratchet.agents.stores import AgentStates, Succession
from tests.agents.host.conftest import MakeHome
from tests.agents.host.homes import NAME, Home, call, said, url_of
from tests.agents.specimens import write_agent
from tests.waiting import eventually_async

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


async def call_until(word: str, url: str | None) -> list[str]:
    """What a client hears that calls again and again until it hears `word`."""
    heard = []
    while not heard or heard[-1] != word:
        heard.append(await said(url))
    return heard


@pytest.mark.soak
def test_a_swap_under_load_drops_no_call_and_leaves_only_the_new_version(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            clients = [asyncio.create_task(call_until("two", host.url)) for _ in range(8)]
            assert await said(host.url) == "one"
            home.move(second)
            for heard in await asyncio.gather(*clients):
                assert heard == sorted(heard)
            await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [first])
            versions = host.status()["agents"][0]["versions"]
            assert [each["commit"] for each in versions if each["state"] != "stopped"] == [second]

    asyncio.run(scenario())


@on_sqlite
def test_a_session_follows_to_the_new_version_and_hears_which_lists_changed(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    write_agent(home.directory(first), version="0.0.0", greeting="hello")
    write_agent(home.directory(second), version="0.1.0", greeting="welcome", tools=("greet", "count", "slow"))
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(str(getattr(message, "method", message)))

    async def greeted(client: Client) -> str:
        answer = await client.call_tool("greet", {"name": "Ada"})
        return str(answer.content[0].text)  # type: ignore[union-attr]

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            transport = streamable_http_client(url_of(host.url))
            async with Client(transport, mode="legacy", message_handler=hear) as client:
                assert client.server_info is not None
                assert client.server_info.version == "0.0.0"
                assert client.server_capabilities.tools.list_changed  # type: ignore[union-attr]
                assert await greeted(client) == "hello, Ada"
                home.move(second)
                await eventually_async(lambda: heard == ["notifications/tools/list_changed"])
                assert await greeted(client) == "welcome, Ada"
                listed = await client.list_tools()
                assert [tool.name for tool in listed.tools] == ["greet", "count", "slow"]
                # The old version is not kept for a client that has followed.
                await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [first])
                assert await greeted(client) == "welcome, Ada"
                async with Client(streamable_http_client(url_of(host.url)), mode="legacy") as new:
                    assert new.server_info is not None
                    assert new.server_info.version == "0.1.0"

    asyncio.run(scenario())
    assert home.state(first) == home.state(second) == {"greeted": 3, "lessons": []}


@pytest.mark.soak
@on_sqlite
def test_a_silent_session_does_not_keep_an_old_version(make_home: MakeHome) -> None:
    home = make_home(session_idle_seconds=4)
    first = home.make_agent("one")
    write_agent(home.directory(first))
    second = home.make_version("two")

    async def scenario() -> None:
        async with (
            hosting(home.runtime, home.loaded) as host,
            Client(streamable_http_client(url_of(host.url)), mode="legacy") as old,
        ):
            await old.list_tools()
            home.move(second)
            await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [first])

    asyncio.run(scenario())


@on_sqlite
def test_both_versions_work_on_one_state_while_one_takes_over(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await call(host.url, "note", key="before the move")
            (home.directory(first) / "begun").unlink()
            late = asyncio.create_task(call(host.url, "note", key="late", seconds=3))
            await eventually_async(lambda: home.has_begun(first))
            home.move(second)
            assert (await call_until("two", host.url))[-1] == "two"
            await call(host.url, "note", key="new")
            assert (await late).structured == {"result": "late"}
            home.move(first, why="rolled_back")
            assert (await call_until("one", host.url))[-1] == "one"

    asyncio.run(scenario())
    assert home.state(first) == home.state(second) == {"before the move": "one", "late": "one", "new": "two"}


@pytest.mark.soak
@on_sqlite
def test_a_version_whose_migration_fails_never_serves_and_nothing_has_changed(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    states = AgentStates(place_of(home.runtime.home, NAME))
    states.adopt(first, first)
    (home.directory(second) / "migrate.py").write_text("def migrate(state):\n    return {}\n")
    states.begin(home.directory(second), second, {}, "test")
    states.plan(second, Succession(store=first, parent=first))

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await call(host.url, "note", key="kept")
            home.move(second)
            await eventually_async(lambda: home.current() == first)
            assert await said(host.url) == "one"
            await call(host.url, "note", key="later")

    asyncio.run(scenario())
    assert home.state(first) == {"kept": "one", "later": "one"}
    assert "loses /kept" in home.told("quarantined")[0]["reason"]


@pytest.mark.soak
@on_sqlite
def test_going_back_while_the_old_version_is_still_in_use_keeps_it(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            [port] = {each["servers"]["runner"]["port"] for each in host.status()["agents"][0]["versions"]}
            held = asyncio.create_task(call(host.url, "note", key="held", seconds=4))
            await eventually_async(lambda: home.has_begun(first))
            home.move(second)
            await call_until("two", host.url)
            home.move(first, why="rolled_back")
            await call_until("one", host.url)
            assert (await held).structured == {"result": "held"}
            await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [second])
            assert host.status()["agents"][0]["versions"][0]["servers"]["runner"]["port"] == port

    asyncio.run(scenario())


@pytest.mark.soak
@on_sqlite
def test_sixteen_clients_lose_no_call_in_twenty_swaps(home: Home) -> None:
    home.make_agent("000")
    versions = [home.make_version(f"{number:03}") for number in range(1, 21)]

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            clients = [asyncio.create_task(call_until("020", host.url)) for _ in range(16)]
            assert await said(host.url) == "000"
            for commit in versions:
                home.move(commit)
                await eventually_async(lambda commit=commit: host.status()["agents"][0]["current"] == commit)
            heard = await asyncio.gather(*clients)
            assert all(each == sorted(each) for each in heard)
            assert {word for each in heard for word in each} == {f"{number:03}" for number in range(21)}
            await eventually_async(lambda: len(home.told("drained")) == 20)

    asyncio.run(scenario())
    assert home.processes() == []
