"""Tools of MCP servers, and the servers that are kept between the calls of one run.

A server of the settings is trusted as an agent is: it sees the system and what its command line names, and has the
network. One of a definition sees what any program of a tool sees. Both end, with all that they started, when the answer
is there, or with the run that they were started for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import anyio

from ratchet.config.workflow_settings import McpToolServer
from ratchet.engines.session_home import private_places
from ratchet.kernel import Misuse
from ratchet.sandbox import Bounds, IsolationRefused, Policy, wrapped
from ratchet.sandbox.policy import is_shown
from ratchet.sandbox.toolchain import named_places
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, ToolUse, filled_in
from ratchet.tools.definition import McpBody, Tool, ToolType
from ratchet.tools.programs import NOT_FOUND, PYTHONS, SCRATCH, TIMED_OUT, bounds_for, environment

_SERVER_LEAVING_SECONDS = 5.0
_WELL_SECONDS = 5.0


class KeptServer:
    """One connection, held open by a task of its own: it must be closed by the task that opened it.

    `complaints` is what it writes to stderr, and can be read until it is closed.
    """

    def __init__(self, protocol: ModuleType, place: Any, complaints: TextIO) -> None:
        self.complaints = complaints
        self._protocol = protocol
        self._scope = anyio.CancelScope()
        self._enough = asyncio.Event()
        self._client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.kept = asyncio.create_task(self._keep(place))

    async def ask(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """What `ask_tool` of the protocol answers, and raises."""
        with anyio.fail_after(seconds):
            client = await asyncio.shield(self._client)
            return await self._protocol.ask_client(client, tool, arguments)

    async def is_well(self) -> bool:
        """Whether it still answers; it may have ended itself since the last call."""
        if self.kept.done():
            return False
        try:
            with anyio.fail_after(_WELL_SECONDS):
                return bool(await self._protocol.still_answers(self._client.result()))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, another one is started
            return False

    def leave(self) -> None:
        """Say goodbye, for which it has a moment."""
        self._scope.deadline = anyio.current_time() + _SERVER_LEAVING_SECONDS
        self._enough.set()
        self.complaints.close()

    def end(self) -> None:
        """End it, whatever it does."""
        self._scope.cancel()
        self.complaints.close()

    async def _keep(self, place: Any) -> None:
        try:
            with self._scope:
                async with self._protocol.connected(place) as client:
                    self._client.set_result(client)
                    await self._enough.wait()
        except Exception as error:  # noqa: BLE001 - raised to the waiting caller; later the next call notices the end
            if not self._client.done():
                self._client.set_exception(error)
        finally:
            if not self._client.done():
                self._client.cancel()
            elif not self._client.cancelled():
                self._client.exception()


class KeptServers:
    """The servers of one run, in its event loop."""

    def __init__(self) -> None:
        self._idle: dict[str, list[KeptServer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def lent(self, key: str, start: Callable[[], Awaitable[KeptServer]]) -> AsyncIterator[KeptServer]:
        """A server of this key for one call. It is kept if the block ends well, and ended otherwise."""
        server = await self._waiting(key)
        if server is None:
            server = await start()
            self._tasks.add(server.kept)
            server.kept.add_done_callback(self._tasks.discard)
        try:
            yield server
        except BaseException:
            server.end()
            raise
        self._idle.setdefault(key, []).append(server)

    async def aclose(self) -> None:
        for server in (each for servers in self._idle.values() for each in servers):
            server.leave()
        self._idle.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _waiting(self, key: str) -> KeptServer | None:
        while idle := self._idle.get(key):
            server = idle.pop()
            if await server.is_well():
                return server
            server.end()
        return None


_SHOWN = 500
_LEAVING_SECONDS = 30.0
_LISTING_SECONDS = 60.0
# Of a server that is kept; one that has ended is noticed by the next call.
_LONGEST_SECONDS = 86_400.0


async def list_server_tools(server: str, occasion: Occasion) -> tuple[Tool, ...]:
    """The tools of a server of the settings, each as one that can be called. Raises `ToolCallFailed`."""
    whole = Tool(id=f"mcp_{server}", type=ToolType.MCP, mcp=McpBody(server))
    protocol = await _protocol()
    seconds = min(occasion.seconds, _LISTING_SECONDS)
    with _answering(whole, occasion, seconds) as place:
        listed = await protocol.ask_for_tools(place, seconds)
    return tuple(
        Tool(
            id=f"mcp_{server}_{each.name}",
            type=ToolType.MCP,
            name=each.name,
            description=each.description or "",
            input_schema=without_patterns(each.input_schema),
            network=True,
            mcp=McpBody(server, each.name),
        )
        for each in listed
    )


async def call_mcp(
    tool: Tool, body: McpBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """What the server's tool answers: its structured content, or else its text. Raises `ToolCallFailed`."""
    name, arguments = _asked(tool, body, values)
    protocol = await _protocol()
    began = time.monotonic()
    if occasion.servers is None:
        with _answering(tool, occasion, seconds) as place:
            answer = await protocol.ask_tool(place, name, arguments, seconds)
    else:
        answer = await _ask_kept(occasion.servers, tool, occasion, name, arguments, seconds)
    use = ToolUse(wall_ms=(time.monotonic() - began) * 1000)
    if isinstance(answer, protocol.MCPError):
        raise ToolCallFailed(f"{body.server}: {name} was refused: {answer}", use=use, final=True)
    texts = [text for each in answer.content if isinstance(text := getattr(each, "text", None), str)]
    if answer.is_error:
        raise ToolCallFailed(f"{body.server}: {name} failed: {' '.join(texts)[:_SHOWN]}", use=use)
    value = answer.structured_content
    return ToolResult("\n".join(texts) if value is None else value, use)


def _asked(tool: Tool, body: McpBody, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Which tool of the server is meant, and its arguments. A whole server is called with both as inputs."""
    if body.tool is not None:
        return body.tool, values
    name, arguments = values.get("tool"), values.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise ToolCallFailed(
            f"tool {tool.id} is a whole MCP server, and the inputs do not say which of its tools is meant",
            hint="give it the inputs `tool` and `arguments`",
            final=True,
        )
    return name, arguments


async def _ask_kept(
    servers: KeptServers,
    tool: Tool,
    occasion: Occasion,
    name: str,
    arguments: Mapping[str, Any],
    seconds: float,
) -> Any:
    """The answer of a server that an earlier call has left, or of a new one."""
    body = _body_of(tool)
    protocol = await _protocol()

    async def start() -> KeptServer:
        complaints = _complaints()
        try:
            place = _server(tool, body, occasion, _LONGEST_SECONDS, complaints)
        except BaseException:
            complaints.close()
            raise
        return KeptServer(protocol, place, complaints)

    # Everything that the server is started with, which is the same for all its tools.
    key = repr((replace(body, tool=None, capabilities=()), tool.folder, tool.network, tool.constraints))
    async with servers.lent(key, start) as server:
        with _explained(body.server, seconds, server.complaints):
            return await server.ask(name, arguments, seconds)


@contextlib.contextmanager
def _answering(tool: Tool, occasion: Occasion, seconds: float) -> Iterator[Any]:
    """The server of a tool, for one question. What goes wrong with it becomes `ToolCallFailed`."""
    body = _body_of(tool)
    with _complaints() as complaints:
        place = _server(tool, body, occasion, seconds, complaints)
        with _explained(body.server, seconds, complaints):
            yield place


def _body_of(tool: Tool) -> McpBody:
    assert tool.mcp is not None
    if not tool.mcp.enabled:
        raise ToolCallFailed(
            f"tool {tool.id} is switched off", hint="set mcp.enabled in its definition", final=True
        )
    return tool.mcp


def _complaints() -> TextIO:
    # What a server complains of is not ours to print.
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _explained(server: str, seconds: float, complaints: TextIO) -> Iterator[None]:
    """What goes wrong with a server becomes `ToolCallFailed`, with the end of what it complained of."""
    try:
        yield
    except Exception as error:
        reason = _innermost(error)
        if isinstance(reason, ToolCallFailed):
            raise reason from None
        why = f"{type(reason).__name__}: {reason}"[:_SHOWN]
        if isinstance(reason, TimeoutError):
            why = f"it did not answer within {seconds:g} s"
        raise ToolCallFailed(
            f"the MCP server {server} cannot be used: {why}{_tail(complaints)}",
            hint="look whether it runs and speaks MCP",
            use=ToolUse(exit_code=TIMED_OUT if isinstance(reason, TimeoutError) else None),
        ) from error


def _server(tool: Tool, body: McpBody, occasion: Occasion, seconds: float, complaints: TextIO) -> Any:
    """The address of the server, or the program that is to be started."""
    if body.url:
        if not tool.network:
            raise ToolCallFailed(
                f"tool {tool.id} is at {body.url}, but it does not declare the network",
                hint="set `network: true` in its definition",
                final=True,
            )
        return body.url
    if body.command:
        return _defined(tool, body, occasion, seconds, complaints)
    known = occasion.runtime.settings.tools.mcp
    if body.server not in known:
        raise ToolCallFailed(
            f"there is no MCP server {body.server!r}; there are: {', '.join(sorted(known)) or 'none'}",
            hint=f"describe it in ratchet.toml under [tools.mcp.{body.server}]",
            final=True,
        )
    return _configured(body.server, known[body.server], occasion, seconds, complaints)


def _configured(
    name: str, server: McpToolServer, occasion: Occasion, seconds: float, complaints: TextIO
) -> Any:
    if server.url:
        return server.url
    if not server.argv:
        raise ToolCallFailed(
            f"the MCP server {name!r} has neither an argv nor a url",
            hint=f"set tools.mcp.{name}.argv",
            final=True,
        )
    argv = shlex.split(server.argv)
    given = {each: os.environ[each] for each in (server.environment or "").split() if each in os.environ}
    named = named_places(argv)
    policy = Policy(
        see_system=True,
        network=True,
        readable=named,
        hidden=private_places(occasion.runtime.home, os.environ, named),
        environment={**environment(), "PATH": os.environ.get("PATH", os.defpath), **given},
    )
    return _program(
        argv, policy, Bounds(wall_seconds=seconds + _LEAVING_SECONDS, memory_bytes=None), complaints
    )


def _defined(tool: Tool, body: McpBody, occasion: Occasion, seconds: float, complaints: TextIO) -> Any:
    command = sys.executable if body.command in PYTHONS else shutil.which(body.command or "")
    if command is None:
        raise ToolCallFailed(
            f"tool {tool.id}: the command {body.command!r} is not there",
            hint=f"install {body.command}",
            use=ToolUse(exit_code=NOT_FOUND),
            final=True,
        )
    program = Path(command)
    folder = () if tool.folder is None else (tool.folder.resolve(),)
    arguments = [each.replace("{tool_dir}", str(folder[0]) if folder else "") for each in body.args]
    policy = Policy(
        network=tool.network,
        readable=(*folder, *(() if is_shown(program.parent) else (program,))),
        environment={**environment(), **filled_in(body.env, occasion.runtime.settings.tools)},
    )
    bounds = bounds_for(tool, occasion, seconds + _LEAVING_SECONDS)
    return _program([str(program), *arguments], policy, bounds, complaints)


def _program(argv: list[str], policy: Policy, bounds: Bounds, complaints: TextIO) -> Any:
    from ratchet.engines.mcp_client import McpProgram

    try:
        confined = wrapped(argv, cwd=SCRATCH, policy=policy, bounds=bounds)
    except (IsolationRefused, Misuse) as error:
        raise ToolCallFailed(str(error), hint=error.hint, final=True) from error
    return McpProgram(tuple(confined), policy.environment, complaints)


async def _protocol() -> ModuleType:
    """Our side of MCP. Imported in a thread: it takes a second in which the event loop has others to serve."""
    return await asyncio.to_thread(import_module, "ratchet.engines.mcp_client")


def _innermost(error: BaseException) -> BaseException:
    """The reason inside the groups that a client's task group makes of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _tail(complaints: TextIO) -> str:
    complaints.seek(0)
    said = complaints.read()[-_SHOWN:].strip()
    return f"; it said: {said}" if said else ""


def without_patterns(schema: Any) -> Any:
    """A schema that came from a server, without what it could keep this process busy with."""
    match schema:
        case Mapping():
            return {
                name: without_patterns(each)
                for name, each in schema.items()
                if name not in ("patternProperties", "format")
                and not (name == "pattern" and isinstance(each, str))
            }
        case list():
            return [without_patterns(each) for each in schema]
    return schema
