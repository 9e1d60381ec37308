"""Calling other agents at their stable addresses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ratchet.agentkit.connection import Address, Lost, call, connected, finished, text_of
from ratchet.agentkit.errors import AgentUnreachable, Misused
from ratchet.agentkit.surroundings import URL, surroundings

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

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


def _address(name: str, version: str | None) -> Address:
    if not _NAME.fullmatch(name):
        raise Misused(f"{name[:80]!r} is not the name of an agent")
    url = surroundings().url
    if url is None:
        raise AgentUnreachable(
            f"{URL} is not set: Ratchet has not started this process", hint="run the agent with Ratchet"
        )
    who = name if version is None else f"{name}@{quote(version, safe='')}"
    # Without the token: it would reach the other agent, which could then speak to the Architect in this one's name.
    return Address(f"{url}/agents/{who}/runner/mcp")


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
