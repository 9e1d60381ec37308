"""The specimen of all tests of agents, written with the kit, really serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.contract import Role
from ratchet.agents.servers import ServerGaveNoAnswer, call_tool, serving, serving_pair
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import launch_of
from tests.agents.specimens import write_agent

_SECONDS = 30.0
_PATIENT = Agents(start_seconds=120.0)


@pytest.mark.soak
def test_a_greeter_greets_counts_and_takes_feedback(tmp_path: Path) -> None:
    directory = write_agent(tmp_path / "greeter", greeting="good day")

    async def use() -> list[str]:
        async with serving_pair(launch_of(directory), _PATIENT) as pair:
            calls = [
                (pair.runner, "greet", {"name": "Ada"}),
                (pair.runner, "count", {}),
                (pair.tuner, "feedback", {"text": "warmer, please", "rating": 3}),
            ]
            return [(await call_tool(at.url, tool, given, _SECONDS)).text for at, tool, given in calls]

    assert asyncio.run(use()) == ["good day, Ada", "1", "noted"]
    assert StateStore(directory).read() == {"greeted": 1, "lessons": ["warmer, please"]}


@pytest.mark.soak
def test_a_greeter_that_crashes_on_a_call_is_seen_to_have_ended(tmp_path: Path) -> None:
    directory = write_agent(tmp_path / "greeter", broken="crashes_on_call")

    async def use() -> str:
        async with serving(launch_of(directory), Role.RUNNER, _PATIENT) as server:
            with pytest.raises(ServerGaveNoAnswer):
                await call_tool(server.url, "greet", {"name": "Ada"}, _SECONDS)
            async with asyncio.timeout(_SECONDS):
                return await server.ended()

    assert asyncio.run(use()) == "runner.py ended with exit code 7"
