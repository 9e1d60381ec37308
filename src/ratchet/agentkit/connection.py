"""A connection to an MCP server, the error when it failed, and calling it from code that is not async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.agentkit.errors import AnswerInvalid, ToolFailed

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult


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
class Address:
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
async def connected(address: Address, seconds: float) -> AsyncIterator[Client]:
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
