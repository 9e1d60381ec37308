"""An MCP client for a server that is not trusted. Importing this takes a second, so it is done when first needed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import anyio
import httpcore2  # noqa: F401 - otherwise imported when first needed, which is in the event loop
import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from ratchet.engines.engine import cancelled_if_asked

MOST_TOOLS = 1000
"""No model and no person can choose between more."""
MOST_BYTES = 64 * 1024 * 1024
"""Of one answer."""


@dataclass(frozen=True, slots=True)
class McpProgram:
    """A server that is started and speaks over its pipes. `complaints` takes its stderr."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    complaints: TextIO


@dataclass(frozen=True, slots=True)
class McpSite:
    """An address that wants a token, which is sent nowhere else."""

    url: str
    token: str | None = field(default=None, repr=False)


Server = str | McpSite | McpProgram
"""Where a server listens, or how it is started."""


async def ask_for_tools(server: Server, seconds: float) -> list[types.Tool]:
    """Raises whatever the client does, perhaps in groups, and `TimeoutError`."""
    async with _connected(server, seconds) as client:
        page = await client.list_tools()
        listed = list(page.tools)
        while page.next_cursor and len(listed) < MOST_TOOLS:
            page = await client.list_tools(cursor=page.next_cursor)
            listed += page.tools
    return listed[:MOST_TOOLS]


@dataclass(frozen=True, slots=True)
class McpOffers:
    """What a server has besides tools."""

    resources: tuple[types.Resource, ...] = ()
    templates: tuple[types.ResourceTemplate, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()


async def ask_for_offers(server: Server, seconds: float) -> McpOffers:
    """What it lists on its first pages, if it says that it has any. Raises as `ask_for_tools` does."""
    async with _connected(server, seconds) as client:
        has = client.server_capabilities
        return McpOffers(
            resources=tuple((await client.list_resources()).resources) if has.resources else (),
            templates=tuple((await client.list_resource_templates()).resource_templates)
            if has.resources
            else (),
            prompts=tuple((await client.list_prompts()).prompts) if has.prompts else (),
        )


async def ask_tool(
    server: Server, tool: str, arguments: Mapping[str, Any], seconds: float
) -> types.CallToolResult | MCPError:
    """The answer, or the error that the server answers with. Raises as `ask_for_tools` does."""
    async with _connected(server, seconds) as client:
        return await ask_client(client, tool, arguments)


async def ask_client(
    client: Client, tool: str, arguments: Mapping[str, Any]
) -> types.CallToolResult | MCPError:
    """The same of a server that is connected."""
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=dict(arguments)))
    try:
        # Not `client.call_tool`: it matches the answer with patterns that the server wrote, and a hostile one could
        # keep this process busy for ever.
        return await client.session.send_request(request, types.CallToolResult)
    except MCPError as error:
        if error.code == types.CONNECTION_CLOSED:
            raise
        return error


async def still_answers(client: Client) -> bool:
    """Whether a server that is connected says anything; newer ones only say that they know no ping."""
    try:
        await client.session.send_ping()
    except MCPError as error:
        return error.code != types.CONNECTION_CLOSED
    return True


@asynccontextmanager
async def connected(server: Server, seconds: float | None = None) -> AsyncIterator[Client]:
    """A connection to a server, closed when the block ends. No answer may take longer than `seconds`, if it is at an
    address.
    """
    if isinstance(server, McpProgram):
        program, *arguments = server.argv
        started = StdioServerParameters(
            command=program, args=arguments, env=dict(server.environment), cwd="/"
        )
        async with Client(stdio_client(started, errlog=server.complaints)) as client:
            yield client
        return
    site = McpSite(server) if isinstance(server, str) else server
    async with (
        _http(site, seconds) as http,
        Client(streamable_http_client(site.url, http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def _connected(server: Server, seconds: float) -> AsyncIterator[Client]:
    # Its cancellation, unlike that of asyncio, also reaches what the client does to say goodbye.
    with cancelled_if_asked(), anyio.fail_after(seconds):
        async with connected(server, seconds) as client:
            yield client


def _http(site: McpSite, seconds: float | None) -> httpx2.AsyncClient:
    # Certificates take long to load, and nothing on this machine has any.
    secure = site.url.startswith("https:")
    return httpx2.AsyncClient(
        headers={} if site.token is None else {"authorization": f"Bearer {site.token}"},
        transport=_Bounded(
            verify=httpx2.create_ssl_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ),
        # A proxy is for other machines.
        trust_env=False,
        timeout=seconds,
    )


class _Bounded(httpx2.AsyncHTTPTransport):
    """Refuses to take in more than `MOST_BYTES` of one answer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # It was not asked for, and a little of it may unfold to a lot.
            raise httpx2.DecodingError("the answer is compressed", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Counted(response.stream)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._stream:
            total += len(piece)
            if total > MOST_BYTES:
                raise httpx2.ReadError(f"the answer has more than {MOST_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
