"""The servers of a version: started on free ports, ready before they are used, ended with their block."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.agentkit.relay import ADDRESS
from ratchet.agents.contract import Role, ToolShape
from ratchet.agents.servers.client import ServerGaveNoAnswer, StartFailed, list_tools, load_protocol
from ratchet.agents.servers.process import COMPILED, Launch, ServerEnded, ServerProcess, running
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import RatchetError
from ratchet.sandbox import Broken

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Below are the ports that people give to their own services.
_LOWEST, _HIGHEST = 20_000, 65_535


@contextlib.contextmanager
def leased_port() -> Iterator[int]:
    """A free port, and that no other Ratchet is given meanwhile.

    It is none of those that the kernel hands out by itself. A program that is not Ratchet's may still take it.
    """
    port, claim = _claim_any()
    with claim:
        yield port


def is_taken(port: int) -> bool:
    """Whether a process listens on the port, so that a server could not."""
    with socket.socket() as probe:
        # As servers do it: connections that have ended are in no one's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _claim_any() -> tuple[int, socket.socket]:
    ports = _candidates()
    first = random.randrange(len(ports))
    for port in ports[first:] + ports[:first]:
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            # Such a name belongs to one process, on the same network as the ports, and ends with that process.
            claim.bind(f"\0ratchet-port-{port}")
            if not is_taken(port):
                return port, claim
        claim.close()
    raise RatchetError(
        f"no port of this machine between {_LOWEST} and {_HIGHEST} is free",
        hint="`ss -tlnp` shows who listens",
    )


def _candidates() -> list[int]:
    """The ports that may be leased; where the kernel hands out all of them, any."""
    wanted = range(_LOWEST, _HIGHEST + 1)
    first, last = map(int, _EPHEMERAL.read_text().split())
    return [port for port in wanted if not first <= port <= last] or list(wanted)


class AgentServer:
    """One of a version's two servers, which answers at `url` on this machine. `tools` are those it listed at first."""

    def __init__(self, process: ServerProcess, tools: tuple[ToolShape, ...]) -> None:
        self._process = process
        self.tools = tools

    @property
    def role(self) -> Role:
        return self._process.role

    @property
    def port(self) -> int:
        return self._process.port

    @property
    def url(self) -> str:
        return self._process.url

    @property
    def log(self) -> str:
        """The end of what it printed."""
        return self._process.printed.tail

    async def ended(self) -> str:
        """Wait until it ends; why it did."""
        return await self._process.ended()

    async def problem(self, seconds: float) -> str | None:
        """What is wrong with it, if anything: it has ended, or does not answer as HTTP wants it within `seconds`.

        That it speaks MCP was seen when it started. Many servers are looked at often, so this costs next to nothing.
        """
        try:
            answers = await self._process.while_it_runs(_speaks_http(self.port, seconds))
        except ServerEnded as error:
            return str(error)
        return None if answers else f"{self.url} did not answer within {seconds:g} s"


_PORTS_TRIED = 3
_PAUSE_SECONDS, _SOON_SECONDS = 0.05, 1.0
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Pair:
    """Both servers of a version."""

    runner: AgentServer
    tuner: AgentServer


@asynccontextmanager
async def serving(launch: Launch, role: Role, settings: Agents) -> AsyncIterator[AgentServer]:
    """A server that answers, for the block; leaving it kills it and all that it started.

    Raises `StartFailed`, and `IsolationRefused` where the machine cannot confine it.
    """
    async with AsyncExitStack() as held:
        yield await _started(held, launch, role, settings)


@asynccontextmanager
async def serving_pair(launch: Launch, settings: Agents) -> AsyncIterator[Pair]:
    """Both servers of a version, started together. Raises as `serving` does, if one of them cannot be had."""
    async with AsyncExitStack() as held:
        try:
            async with asyncio.TaskGroup() as group:
                runner = group.create_task(_started(held, launch, Role.RUNNER, settings))
                tuner = group.create_task(_started(held, launch, Role.TUNER, settings))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        yield Pair(runner.result(), tuner.result())


async def _started(held: AsyncExitStack, launch: Launch, role: Role, settings: Agents) -> AgentServer:
    """A server that answers, and that `held` ends. It gets another port where a foreign program took the first."""
    _check(launch, role)
    for tries_left in reversed(range(_PORTS_TRIED)):
        async with AsyncExitStack() as trial:
            port = trial.enter_context(leased_port())
            try:
                server = await _tried(trial, launch, role, port, settings)
            except StartFailed:
                if tries_left == 0 or not is_taken(port):
                    raise
            else:
                held.push_async_exit(trial.pop_all())
                return server
    raise AssertionError("the last try returns or raises")


async def _tried(
    trial: AsyncExitStack, launch: Launch, role: Role, port: int, settings: Agents
) -> AgentServer:
    """A server that answers on `port`, and that `trial` ends. None is left if this raises."""
    async with AsyncExitStack() as mine:
        try:
            process = await mine.enter_async_context(running(launch, role, port, settings))
        except (OSError, Broken) as error:
            raise StartFailed(f"{role.file} cannot be started: {error}", hint="try it again") from error
        tools = await _answer(process, settings.start_seconds)
        if not tools and role is Role.RUNNER:
            raise _failed(process, f"{role.file} lists no tools, so there is nothing that it could do")
        trial.push_async_exit(mine.pop_all())
    return AgentServer(process, tools)


async def _answer(process: ServerProcess, seconds: float) -> tuple[ToolShape, ...]:
    """The first answer of a server: the tools that it lists."""
    silent = f"nothing listens on port {process.port}, which is its first argument"
    slow = f"it listens on port {process.port}, but keeps its first caller waiting"
    trouble = silent

    async def is_heard() -> bool:
        """Whether somebody answers at all; a relay hangs up at once where nobody takes its connections."""
        nonlocal trouble
        try:
            async with _asked_over_http(process.port) as reader:
                try:
                    async with asyncio.timeout(_SOON_SECONDS):
                        heard = await reader.read(1)
                except TimeoutError:
                    trouble = slow
                    heard = await reader.read(1)
        except OSError:
            heard = b""
        if not heard:
            trouble = silent
        return bool(heard)

    async def ask_until_answered() -> tuple[ToolShape, ...]:
        nonlocal trouble
        while True:
            if await is_heard():
                try:
                    return await list_tools(process.url, seconds)
                except ServerGaveNoAnswer as error:
                    trouble = str(error)
            await asyncio.sleep(_PAUSE_SECONDS)

    # What we need ourselves is not held against the server.
    await load_protocol()
    try:
        async with asyncio.timeout(seconds):
            return await process.while_it_runs(ask_until_answered())
    except ServerEnded as end:
        raise _failed(process, f"{end} before it answered") from None
    except TimeoutError:
        why = f"{process.role.file} did not answer within {seconds:g} s (agents.start_seconds): {trouble}"
        raise _failed(process, why) from None


@asynccontextmanager
async def _asked_over_http(port: int) -> AsyncIterator[asyncio.StreamReader]:
    """Raises `OSError` where nothing listens."""
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    try:
        writer.write(f"GET / HTTP/1.1\r\nhost: {ADDRESS}:{port}\r\nconnection: close\r\n\r\n".encode())
        yield reader
    finally:
        writer.close()


async def _speaks_http(port: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds), _asked_over_http(port) as reader:
            return (await reader.read(5)).startswith(b"HTTP/")
    except (OSError, TimeoutError):
        return False


def _check(launch: Launch, role: Role) -> None:
    file, compiled = launch.directory / role.file, launch.directory / COMPILED
    if file.is_symlink() or not file.is_file():
        raise StartFailed(f"{file} is not a file, so it cannot be run", hint="restore the version's files")
    if compiled.is_symlink():
        raise StartFailed(f"{compiled} is a link to compiled code of another owner", hint="remove it")


def _failed(process: ServerProcess, why: str) -> StartFailed:
    log = process.printed.tail
    said = log.strip().rpartition("\n")[2][:_SHOWN]
    return StartFailed(
        f"{why}; the last that it printed: {said}" if said else f"{why}; it printed nothing",
        hint=f"see logs/{process.role}.out of the version; a server must answer at {process.url}",
        log=log,
    )
