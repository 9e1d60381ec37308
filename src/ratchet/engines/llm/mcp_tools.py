"""The tools of MCP servers, for as long as a session lasts."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ratchet.engines.answer import check_schema
from ratchet.engines.cancelling import cancelled_if_asked
from ratchet.engines.failure import Failure
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.llm.tools import prefixed
from ratchet.engines.session import McpServer, Tool
from ratchet.sandbox import Bounds, Policy, wrapped

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

# No model can choose between more.
_MOST = 1000
_SHOWN = 500


def mcp_is_installed() -> bool:
    return find_spec("mcp") is not None


@dataclass(frozen=True, slots=True)
class Surface:
    """Where a server that is started for a session runs: it sees everything, and writes only the workspace."""

    workspace: Path | None
    path: str
    seconds: float

    def command(self, server: McpServer) -> tuple[list[str], dict[str, str]]:
        """Its command line and its environment. All that it starts ends with it."""
        environment = {"PATH": self.path, **server.environment}
        policy = Policy(
            see_everything=True,
            network=True,
            # Listed for when they lie in the machine's /tmp, which is not shown.
            readable=server.named_files(),
            writable=() if self.workspace is None else (self.workspace,),
            environment=environment,
        )
        bounds = Bounds(wall_seconds=self.seconds, memory_bytes=None)
        argv = wrapped(server.argv, cwd=self.workspace or Path("/"), policy=policy, bounds=bounds)
        return argv, environment


@contextlib.asynccontextmanager
async def tools_of(servers: Sequence[McpServer], surface: Surface) -> AsyncIterator[list[Tool]]:
    """Connect to every server for the block; a server that was started for it is ended with it."""
    failed: Exception | None = None
    with cancelled_if_asked():
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    yield [tool for each in servers for tool in await _connected(each, surface, stack)]
                except Exception as error:  # noqa: BLE001 - raised below: the clients would wrap it into groups
                    failed = error
        except ExceptionGroup as group:
            failed = failed or CallFault(
                Failure.CRASHED, f"an MCP server broke off: {_told(group)}", hint="look at its log"
            )
        if failed is not None:
            raise failed


async def _connected(server: McpServer, surface: Surface, stack: contextlib.AsyncExitStack) -> list[Tool]:
    complaints = stack.enter_context(_scratch_file())
    try:
        client = await stack.enter_async_context(_client(server, surface, complaints))
        page = await client.list_tools()
        listed = list(page.tools)
        while page.next_cursor and len(listed) < _MOST:
            page = await client.list_tools(cursor=page.next_cursor)
            listed += page.tools
        for each in listed:
            check_schema(each.input_schema)
    except Exception as error:
        raise CallFault(
            Failure.CRASHED,
            f"the MCP server {server.name} cannot be used: {_told(error)}{_tail(complaints)}",
            hint=f"look whether {server.url or ' '.join(server.argv)} runs and speaks MCP",
            worked=False,
        ) from error
    return [
        prefixed(
            Tool(each.name, each.description or "", each.input_schema, _use(client, server, each.name)),
            server.name,
        )
        for each in listed
    ]


def _client(server: McpServer, surface: Surface, complaints: TextIO) -> Client:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    if server.url:
        return Client(server.url)
    (program, *arguments), environment = surface.command(server)
    parameters = StdioServerParameters(command=program, args=arguments, env=environment)
    return Client(stdio_client(parameters, errlog=complaints))


def _scratch_file() -> TextIO:
    """For what a server complains about, which is not ours to print."""
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _tail(complaints: TextIO) -> str:
    complaints.seek(0)
    said = complaints.read()[-_SHOWN:].strip()
    return f"; it said: {said}" if said else ""


def _use(client: Client, server: McpServer, name: str) -> Callable[[Mapping[str, Any]], Awaitable[str]]:
    async def use(given: Mapping[str, Any]) -> str:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        try:
            return _text_of(await client.call_tool(name, dict(given)))
        except Exception as error:
            if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
                return f"Error: {error}"
            raise CallFault(
                Failure.CRASHED,
                f"the MCP server {server.name} broke off: {_told(error)}",
                hint="look at its log",
            ) from error

    return use


def _text_of(result: CallToolResult) -> str:
    texts = [text for each in result.content if isinstance(text := getattr(each, "text", None), str)]
    said = "\n".join(texts)
    if not said and result.structured_content is not None:
        said = json.dumps(result.structured_content, ensure_ascii=False)
    return f"Error: {said}" if result.is_error else said


def _told(error: BaseException) -> str:
    """The reason inside the groups that a client's task group makes of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
