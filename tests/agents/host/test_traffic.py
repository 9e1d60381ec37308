"""Traffic that is split between two versions, and calls that end their server, as the ledger has them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from ratchet.agents.host import hosting
from ratchet.agents.servers import ServerGaveNoAnswer
from ratchet.agents.traffic import begin, stop
from ratchet.ledger.agents import get_agent
from ratchet.ledger.production import call_totals, list_incidents
from tests.agents.host.homes import NAME, Home, call, said


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_share_of_new_sessions_goes_to_the_other_version_and_a_crash_is_an_incident(home: Home) -> None:
    first = home.make_agent("one")
    second = home.make_version("two", parent=first)
    settings = home.runtime.settings.agents

    async def scenario() -> None:
        async with hosting(home.runtime, home.loaded) as host:

            async def until(words: set[str]) -> None:
                """Call until the newest calls have heard just these."""
                heard: list[str] = []
                while set(heard[-20:]) != words or len(heard) < 20:
                    heard.append(await said(host.url))

            assert await said(host.url) == "one"
            with home.runtime.ledger.write() as tx:
                begin(tx, get_agent(tx, NAME), second, 50, settings)
            await until({"one", "two"})
            with home.runtime.ledger.write() as tx:
                stop(tx, get_agent(tx, NAME), "a test")
            await until({"one"})
            with contextlib.suppress(ServerGaveNoAnswer):
                await call(host.url, "crash", why="poison")

        with home.runtime.ledger.read() as tx:
            agent = get_agent(tx, NAME)
            counted = {(each.commit, each.tool): each for each in call_totals(tx, agent.id)}
            [incident] = list_incidents(tx, agent.id)
        assert counted[first, "say"].calls >= 20
        assert counted[second, "say"].calls >= 1
        assert counted[first, "crash"].errors == 1
        assert (incident.kind, incident.tool, incident.arguments) == ("error", "crash", {"why": "poison"})
        assert "its server ended" in incident.message

    asyncio.run(scenario())
