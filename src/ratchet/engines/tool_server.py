"""Tools of this process for an agent in another one: a real MCP server, for as long as a session lasts."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ratchet.engines.engine import Engine, EngineTool, McpServer, Request, check_schema, validate_answer
from ratchet.kernel import Misuse, RatchetError

if TYPE_CHECKING:
    from ratchet.engines.mcp_listener import McpListener


_ENDED = "the session has ended, so its tools cannot be used any more"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionToolAnswer:
    """What the model is told. `failed` marks a mistake, its own or one of the tool."""

    text: str
    failed: bool = False


class Underway(Generic[T]):
    """Calls that run. Once it is closed none of them runs any more, and none begins."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[T]] = set()
        self._ended = asyncio.Event()

    async def run(self, call: Coroutine[Any, Any, T]) -> T | None:
        """What the call comes to; nothing if it was ended here. Cancelling this cancels it, and waits for that."""
        if self._ended.is_set():
            call.close()
            return None
        task = asyncio.create_task(call)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._ended.is_set():
                raise
            return None
        finally:
            self._running.discard(task)

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended."""
        self._ended.set()
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running))


class Calls:
    """Raises `Misuse` for tools that cannot be offered: two of one name, or a schema that is none."""

    def __init__(self, tools: Sequence[EngineTool]) -> None:
        self.tools: dict[str, EngineTool] = {}
        for tool in tools:
            if tool.name in self.tools:
                raise Misuse(f"two tools are called {tool.name}", hint="give each a name of its own")
            try:
                check_schema(tool.input_schema)
            except ValueError as error:
                raise Misuse(f"the tool {tool.name} cannot be offered: {error}") from None
            self.tools[tool.name] = tool
        self._underway = Underway[SessionToolAnswer]()

    async def use(self, name: str, given: Mapping[str, Any]) -> SessionToolAnswer:
        """Run a tool as a model asked. Cancelling it cancels the tool, and waits for that."""
        tool = self.tools.get(name)
        if tool is None:
            return SessionToolAnswer(
                f"there is no tool {name!r}; there are: {', '.join(self.tools)}", failed=True
            )
        try:
            fitting = validate_answer(given, tool.input_schema)
        except (ValueError, RecursionError) as error:
            return SessionToolAnswer(f"the arguments of {name} cannot be used: {error}", failed=True)
        answer = await self._underway.run(_run(tool, fitting))
        return SessionToolAnswer(_ENDED, failed=True) if answer is None else answer

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended. Nothing can be used afterwards."""
        await self._underway.close()


async def _run(tool: EngineTool, given: Mapping[str, Any]) -> SessionToolAnswer:
    try:
        return SessionToolAnswer(await tool.run(given))
    except Exception as error:  # noqa: BLE001 - told to the model, as a tool promises
        return SessionToolAnswer(in_words(error), failed=True)


def in_words(error: Exception) -> str:
    """What a model is told of an error, with the next step if one is known."""
    if not isinstance(error, RatchetError):
        return f"{type(error).__name__}: {error}"
    return f"{error} ({error.hint})" if error.hint else str(error)


_HOST = "127.0.0.1"


@asynccontextmanager
async def listening(
    make: Callable[[str], McpListener], close: Callable[[], Awaitable[None]]
) -> AsyncIterator[str]:
    """Let what `make` makes for an address answer there; the value is the address.

    `make` is called in a thread, since the libraries take a second to import. When the block is left, `close` ends what
    still runs before the server ends.
    """
    with _free_port() as bound:
        address = f"{_HOST}:{bound.getsockname()[1]}"
        listener = await asyncio.to_thread(make, address)
        serving = asyncio.create_task(listener.listen(bound))
        try:
            await listener.answering(serving)
            yield address
        finally:
            # A caller that is cancelled here once more need not wait; it ends all the same.
            await asyncio.shield(_end(close, listener, serving))


def _free_port() -> socket.socket:
    # Named as TCP, or asyncio does not switch off Nagle, and every answer waits 40 ms for an acknowledgement.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.bind((_HOST, 0))
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


async def _end(
    close: Callable[[], Awaitable[None]], listener: McpListener, serving: asyncio.Task[None]
) -> None:
    await close()
    listener.should_exit = True
    await asyncio.wait({serving})


NAME = "ratchet"
"""What the server is called where a model sees its tools."""


@asynccontextmanager
async def served(tools: Sequence[EngineTool], *, name: str = NAME) -> AsyncIterator[McpServer]:
    """A server of these tools for the block. When it is left, calls that still run are cancelled and have ended.

    It listens on the loopback interface only, on a free port and behind a path that cannot be guessed: neither another
    session nor a page in a browser can use what was offered to one session. Raises `Misuse` for tools that cannot be
    offered.
    """
    calls = Calls(tools)
    path = f"/{secrets.token_urlsafe(32)}/mcp"

    def make(address: str) -> McpListener:
        from ratchet.engines.mcp_listener import tool_listener

        return tool_listener(calls, name=name, address=address, path=path)

    async with listening(make, calls.close) as address:
        yield McpServer(name, url=f"http://{address}{path}")


class Way(StrEnum):
    """How an engine takes tools of this process: over MCP, as functions, or not at all."""

    MCP = "mcp"
    FUNCTIONS = "functions"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """A request with the tools in it. With `Way.NONE` there are none: such a session can only leave its files."""

    request: Request
    way: Way


def way_to(engine: Engine) -> Way:
    """How this engine can be given tools. A prompt has to know that before a session begins."""
    if engine.capabilities.mcp_tools:
        return Way.MCP
    return Way.FUNCTIONS if engine.capabilities.own_tools else Way.NONE


@asynccontextmanager
async def offer(engine: Engine, request: Request, tools: Sequence[EngineTool]) -> AsyncIterator[OfferedTools]:
    """The request with these tools, for the block: they cannot be used any more when it ends."""
    way = way_to(engine) if tools else Way.NONE
    match way:
        case Way.MCP:
            async with served(tools) as server:
                yield OfferedTools(replace(request, mcp_servers=(*request.mcp_servers, server)), way)
        case Way.FUNCTIONS:
            yield OfferedTools(replace(request, tools=(*request.tools, *tools)), way)
        case Way.NONE:
            yield OfferedTools(request, way)
