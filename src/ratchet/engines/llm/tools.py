"""The tools that a model may use during a session, its own and those of MCP servers, and who may forbid it."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ratchet.engines.engine import (
    EngineTool,
    EventKind,
    Failure,
    Guard,
    McpServer,
    Transcript,
    cancelled_if_asked,
    check_schema,
    validate_answer,
)
from ratchet.engines.llm.fault import CallFault
from ratchet.sandbox import Bounds, Policy, wrapped

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from pydantic_ai.messages import ToolCallPart


# What of a result a model is shown; the rest would only fill its context.
_LONGEST = 100_000


def prefixed(tool: EngineTool, server: str) -> EngineTool:
    """`tool` under the name that every engine gives to a tool of this server."""
    return replace(tool, name=f"mcp__{server}__{tool.name}")


class SessionTools:
    """Uses a tool as a model asks. A mistake becomes a result that tells the model so."""

    def __init__(self, tools: Sequence[EngineTool], guard: Guard | None, transcript: Transcript) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.denied: list[dict[str, str]] = []
        self._guard = guard
        self._transcript = transcript

    async def use(self, call: ToolCallPart) -> str:
        """What the model is told. Raises `CallFault` when the tool itself is gone."""
        tool = self.tools.get(call.tool_name)
        if tool is None:
            return f"Error: there is no tool {call.tool_name!r}; there are: {', '.join(self.tools) or 'none'}"
        try:
            given = validate_answer(json.loads(call.args_as_json_str()), tool.input_schema)
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments cannot be used: {error}"
        if reason := await self._objection(tool, given):
            self.denied.append({"tool": tool.name, "reason": reason})
            self._transcript.say(EventKind.NOTE, f"{tool.name} was denied: {reason}")
            return f"Error: this was denied: {reason}"
        try:
            result = await tool.run(given)
        except CallFault:
            raise
        except Exception as error:  # noqa: BLE001 - told to the model, as a tool promises
            return f"Error: {type(error).__name__}: {error}"
        return result if len(result) <= _LONGEST else f"{result[:_LONGEST]}… (cut)"

    async def _objection(self, tool: EngineTool, given: Mapping[str, Any]) -> str | None:
        """Why the guard forbids this, if it does. What it could not be asked about is forbidden."""
        if self._guard is None:
            return None
        try:
            return await self._guard(tool.name, given)
        except Exception as error:  # noqa: BLE001 - whatever it is, this was not allowed
            return f"the guard failed: {type(error).__name__}: {error}"


# No model can choose between more.
_MOST = 1000
_SHOWN = 500


def mcp_is_installed() -> bool:
    return find_spec("mcp") is not None


@dataclass(frozen=True, slots=True)
class ToolSurface:
    """Where a server that is started for a session runs: it sees the system, the programs on the PATH and what its
    command line names, and writes only the workspace."""

    workspace: Path | None
    path: str
    seconds: float

    def command(self, server: McpServer) -> tuple[list[str], dict[str, str]]:
        """Its command line and its environment. All that it starts ends with it."""
        environment = {"PATH": self.path, **server.environment}
        policy = Policy(
            see_system=True,
            network=True,
            readable=server.named_files(),
            writable=() if self.workspace is None else (self.workspace,),
            environment=environment,
        )
        bounds = Bounds(wall_seconds=self.seconds, memory_bytes=None)
        argv = wrapped(server.argv, cwd=self.workspace or Path("/"), policy=policy, bounds=bounds)
        return argv, environment


@contextlib.asynccontextmanager
async def tools_of(servers: Sequence[McpServer], surface: ToolSurface) -> AsyncIterator[list[EngineTool]]:
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
                Failure.CRASHED, f"an MCP server broke off: {_message(group)}", hint="look at its log"
            )
        if failed is not None:
            raise failed


async def _connected(
    server: McpServer, surface: ToolSurface, stack: contextlib.AsyncExitStack
) -> list[EngineTool]:
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
            f"the MCP server {server.name} cannot be used: {_message(error)}{_tail(complaints)}",
            hint=f"look whether {server.url or ' '.join(server.argv)} runs and speaks MCP",
            worked=False,
        ) from error
    return [
        prefixed(
            EngineTool(each.name, each.description or "", each.input_schema, _use(client, server, each.name)),
            server.name,
        )
        for each in listed
    ]


def _client(server: McpServer, surface: ToolSurface, complaints: TextIO) -> Client:
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
                f"the MCP server {server.name} broke off: {_message(error)}",
                hint="look at its log",
            ) from error

    return use


def _text_of(result: CallToolResult) -> str:
    texts = [text for each in result.content if isinstance(text := getattr(each, "text", None), str)]
    said = "\n".join(texts)
    if not said and result.structured_content is not None:
        said = json.dumps(result.structured_content, ensure_ascii=False)
    return f"Error: {said}" if result.is_error else said


def _message(error: BaseException) -> str:
    """The reason inside the groups that a client's task group makes of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
