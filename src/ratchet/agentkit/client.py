"""Calling other agents at their stable addresses, over a connection to an MCP server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from ratchet.agentkit.errors import AgentUnreachable, AnswerInvalid, Misused, ToolFailed
from ratchet.agentkit.logs import URL, surroundings

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool


T = TypeVar("T")


def finished(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns, once it has. Inside a running event loop it is done by a thread of its own."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


_CONNECT_SECONDS = 10.0
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class McpAddress:
    url: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Address({self.url!r})"


class Lost(Exception):
    """The server was not reached, or was lost. `spoken` says whether it had answered before."""

    def __init__(self, why: str, *, spoken: bool) -> None:
        super().__init__(why)
        self.spoken = spoken


@asynccontextmanager
async def connected(address: McpAddress, seconds: float) -> AsyncIterator[Client]:
    """A client of the server there, for the block; an answer may take `seconds`. Raises `Lost`.

    What the block raises comes out as it is.
    """
    import httpx2
    from mcp import Client, MCPError
    from mcp.client.streamable_http import streamable_http_client

    spoken = False
    raised: Exception | None = None
    refusals: list[int] = []

    async def note(response: httpx2.Response) -> None:
        if response.is_error:
            refusals.append(response.status_code)

    http = httpx2.AsyncClient(
        headers={} if address.token is None else {"Authorization": f"Bearer {address.token}"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=seconds),
        event_hooks={"response": [note]},
        # What is asked here answers on this machine; a proxy would be in between.
        trust_env=False,
    )
    try:
        async with http:
            transport = streamable_http_client(address.url, http_client=http, max_sse_event_size=_MOST_BYTES)
            async with Client(transport, read_timeout_seconds=seconds) as client:
                spoken = True
                try:
                    yield client
                except Exception as error:  # noqa: BLE001 - raised below, where no task group wraps it
                    raised = error
    except (ExceptionGroup, MCPError, OSError, httpx2.HTTPError, RuntimeError) as error:
        raise Lost(_reason(error, refusals), spoken=spoken) from error
    if isinstance(raised, MCPError | OSError | httpx2.HTTPError):
        raise Lost(_reason(raised, refusals), spoken=True) from raised
    if raised is not None:
        raise raised


async def call(client: Client, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """The answer of a tool. Raises `ToolFailed` if it is that the tool failed, `AnswerInvalid` if it is none."""
    try:
        answer = await client.call_tool(tool, dict(arguments))
    except (RuntimeError, ValueError) as error:
        # How the library says that an answer is not what the tool's schema or the protocol allows.
        raise AnswerInvalid(f"{tool} gave no valid answer: {error!s:.300}") from error
    if answer.is_error:
        raise ToolFailed(text_of(answer) or f"{tool} failed and does not say why", tool=tool)
    return answer


def text_of(answer: CallToolResult) -> str:
    return "\n".join(block.text for block in answer.content if block.type == "text")


def _reason(error: BaseException, refusals: list[int]) -> str:
    leaf = next(_leaves(error))
    said = str(leaf) or type(leaf).__name__
    return f"{said} (HTTP {refusals[-1]})" if refusals else said


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


_SECONDS = 300.0
_MOST_PAGES = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool of another agent, as its caller sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None


class Agent:
    """Another agent, as long as the connection to it is open."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self._client = client
        self._tools: dict[str, Tool] | None = None

    async def tools(self) -> list[AgentTool]:
        """The tools that it has."""
        return [
            AgentTool(tool.name, tool.description or "", tool.input_schema, tool.output_schema)
            for tool in (await self._listed()).values()
        ]

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """What the tool returns: its structured answer, or its text if it has none. Raises `ToolFailed`.

        MCP wraps an answer that is no object into one with the only key `result`; here it comes unwrapped.
        """
        known = (await self._listed()).get(tool)
        if known is None:
            raise Misused(
                f"{self.name} has no tool {tool!r}", hint=f"it has: {', '.join(await self._listed())}"
            )
        return _value(await call(self._client, tool, arguments), known)

    async def _listed(self) -> dict[str, Tool]:
        if self._tools is None:
            self._tools = {tool.name: tool async for tool in _all_tools(self._client)}
        return self._tools


@asynccontextmanager
async def agent(name: str, version: str | None = None, *, seconds: float = _SECONDS) -> AsyncIterator[Agent]:
    """The agent `name`, for the block: its current version, or the one that `version` names (a commit, a tag).

    An answer may take `seconds`. Raises `AgentUnreachable`.
    """
    address = _address(name, version)
    try:
        async with connected(address, seconds) as client:
            yield Agent(name, client)
    except Lost as lost:
        raise AgentUnreachable(
            f"the agent {name} cannot be reached at {address.url}: {lost}",
            hint="look whether it exists and runs",
        ) from lost


def call_agent(name: str, tool: str, /, **arguments: Any) -> Any:
    """What a tool of another agent returns, for code that is not async. Raises `AgentUnreachable` and `ToolFailed`."""

    async def called() -> Any:
        async with agent(name) as other:
            return await other.call(tool, **arguments)

    return finished(called)


def _address(name: str, version: str | None) -> McpAddress:
    if not _NAME.fullmatch(name):
        raise Misused(f"{name[:80]!r} is not the name of an agent")
    url = surroundings().url
    if url is None:
        raise AgentUnreachable(
            f"{URL} is not set: Ratchet has not started this process", hint="run the agent with Ratchet"
        )
    who = name if version is None else f"{name}@{quote(version, safe='')}"
    # Without the token: it would reach the other agent, which could then speak to the Architect in this one's name.
    return McpAddress(f"{url}/agents/{who}/runner/mcp")


async def _all_tools(client: Client) -> AsyncIterator[Tool]:
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if cursor is None:
            return


def _value(answer: CallToolResult, tool: Tool) -> Any:
    structured = answer.structured_content
    if structured is None:
        return text_of(answer)
    if isinstance(structured, dict) and set(structured) == {"result"} and _wraps(tool.output_schema):
        return structured["result"]
    return structured


def _wraps(schema: Mapping[str, Any] | None) -> bool:
    """Whether this is the object that MCP's Python library puts around an answer that is none."""
    return (
        schema is not None
        and set(schema.get("properties", ())) == {"result"}
        and str(schema.get("title", "")).endswith("Output")
    )
