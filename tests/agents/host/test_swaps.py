"""Moving an address to another version while it is used."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ratchet.agentkit import StateStore
from ratchet.agents.contract import CUT
from ratchet.agents.host import hosting
from tests.agents.host.conftest import MakeHome
from tests.agents.host.homes import Home, call, said, url_of
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


@pytest.mark.soak
@on_sqlite
def test_a_session_stays_with_its_version_and_new_ones_see_the_new_version(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    for commit, greeting in ((first, "hello"), (second, "welcome")):
        write_agent(home.directory(commit), greeting=greeting)

    async def greeted(client: Client) -> str:
        answer = await client.call_tool("greet", {"name": "Ada"})
        return str(answer.content[0].text)  # type: ignore[union-attr]

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            url = url_of(host.url)
            async with Client(streamable_http_client(url), mode="legacy") as old:
                assert await greeted(old) == "hello, Ada"
                home.move(second)
                await eventually_async(lambda: host.status()["agents"][0]["current"] == second)
                async with Client(streamable_http_client(url), mode="legacy") as new:
                    assert await greeted(new) == "welcome, Ada"
                assert (await call(host.url, "greet", name="Ada")).text == "welcome, Ada"
                assert await greeted(old) == "hello, Ada"
                assert home.told("drained") == []
            await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [first])

    asyncio.run(scenario())


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


@pytest.mark.soak
@on_sqlite
def test_what_the_old_version_changes_late_reaches_the_new_one(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    (home.directory(second) / "state.json").write_text('{"begun": true}')
    (home.directory(second) / CUT).write_text(json.dumps({"from": first, "state": {}}))

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            await call(host.url, "note", key="before the move")
            (home.directory(first) / "begun").unlink()
            late = asyncio.create_task(call(host.url, "note", key="late", seconds=3))
            await eventually_async(lambda: home.has_begun(first))
            home.move(second)
            assert (await call_until("two", host.url))[-1] == "two"
            assert home.state(second) == {"begun": True, "before the move": "one"}
            await call(host.url, "note", key="new")
            assert (await late).structured == {"result": "late"}
            await eventually_async(lambda: bool(home.told("drained")))

    asyncio.run(scenario())
    assert home.state(second) == {"begun": True, "before the move": "one", "late": "one", "new": "two"}
    assert not (home.directory(second) / CUT).exists()
    changes = StateStore(home.directory(second)).history()
    assert [change.by for change in changes if (change.by or "").startswith("host, from")] != []


@pytest.mark.soak
@on_sqlite
def test_where_both_versions_changed_the_state_the_new_one_stays_and_it_is_told(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    (home.directory(second) / "state.json").write_text('{"word": "mine"}')
    (home.directory(second) / CUT).write_text(json.dumps({"from": first, "state": {"word": "common"}}))
    (home.directory(first) / "state.json").write_text('{"word": "theirs", "more": 1}')

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "one"
            home.move(second)
            await eventually_async(lambda: bool(home.told("drained")))

    asyncio.run(scenario())
    assert home.state(second) == {"word": "mine", "more": 1}
    assert [(each["commit"], each["left_out"]) for each in home.told("state")] == [(second, ["/word"])]


@pytest.mark.soak
@on_sqlite
def test_a_host_finishes_what_another_that_died_owed(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    home.move(second)
    (home.directory(second) / CUT).write_text(json.dumps({"from": first, "state": {}}))
    (home.directory(first) / "state.json").write_text('{"late": 1}')

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            assert await said(host.url) == "two"

    asyncio.run(scenario())
    assert home.state(second) == {"late": 1}
    assert not (home.directory(second) / CUT).exists()


@pytest.mark.soak
@on_sqlite
def test_going_back_leaves_the_older_version_the_state_that_it_had(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    home.move(second)

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:
            late = asyncio.create_task(call(host.url, "note", key="late", seconds=2))
            await eventually_async(lambda: home.has_begun(second))
            home.move(first, why="rolled_back")
            await late
            await eventually_async(lambda: [each["commit"] for each in home.told("drained")] == [second])

    asyncio.run(scenario())
    assert (home.state(first), home.state(second)) == ({}, {"late": "two"})


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
