"""The process of a server: in the sandbox, on its port, and what it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, TypeVar

from ratchet.agents.contract import Role
from ratchet.agents.servers.confinement import bounds_for, policy_for
from ratchet.agents.servers.launch import Launch
from ratchet.agents.servers.network import beside_relay, relayed
from ratchet.agents.servers.printed import Printed
from ratchet.agents.servers.relay.carrying import ADDRESS
from ratchet.config.agent_settings import Agents
from ratchet.sandbox import Broken, CannotStart, Finished, Running, Stopped, start

_Result = TypeVar("_Result")


class Ended(Exception):
    """The process has ended; the message tells why."""


@dataclass(frozen=True, slots=True)
class Process:
    role: Role
    port: int
    printed: Printed
    _running: Running
    _settings: Agents

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/mcp"

    async def ended(self) -> str:
        """Wait until it ends; why it did."""
        try:
            finished = await self._running.wait()
        except (Broken, CannotStart) as error:
            return str(error)
        return self._told(finished)

    async def while_it_runs(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """What comes of `work`, which is given up when the process ends first: that raises `Ended`."""
        working, ending = asyncio.create_task(work), asyncio.create_task(self.ended())
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise Ended(ending.result())
            return working.result()
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)

    def _told(self, finished: Finished) -> str:
        file = self.role.file
        match finished.stopped:
            case Stopped.MEMORY:
                most = f"{self._settings.memory_mb} MB of memory (agents.memory_mb)"
            case Stopped.PROCESSES:
                most = f"{self._settings.processes} processes (agents.processes)"
            case Stopped.CANCELLED:
                return f"{file} was ended by Ratchet"
            case _:
                return f"{file} {finished.problem or 'ended with exit code 0'}"
        return f"{file} was ended because it used more than {most}"


@asynccontextmanager
async def running(launch: Launch, role: Role, port: int, settings: Agents) -> AsyncIterator[Process]:
    """The process for the block; leaving it ends the whole tree. Raises `Refused`, and `OSError` for a taken port."""
    argv = [sys.executable, role.file, str(port)]
    if role is Role.TUNER:
        argv.append(str(launch.architect_port))
    async with AsyncExitStack() as held:
        printed = held.enter_context(closing(Printed(launch.directory, role)))
        relay = None
        if not settings.network:
            relay = await held.enter_async_context(relayed(port, launch.architect_port))
            argv = beside_relay(argv, relay, port, launch.architect_port)
        policy = policy_for(launch, role, relay)
        bounds = bounds_for(settings)
        run = await held.enter_async_context(
            start(argv, cwd=launch.directory, bounds=bounds, policy=policy, hear=printed.take)
        )
        yield Process(role, port, printed, run, settings)
