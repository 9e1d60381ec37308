"""The Architect's tools over MCP, while a host runs. A caller sees only what it may use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ratchet.agents.addresses import AgentTokens
from ratchet.agents.architect_service import ArchitectCaller, ArchitectService, Callers, Reply
from ratchet.agents.architect_tools import ArchitectTool, usable_by
from ratchet.agents.completion import LONGEST_QUESTION
from ratchet.agents.gateway.routes import ARCHITECT_PATH
from ratchet.config import Loaded
from ratchet.engines.engine import validate_answer
from ratchet.engines.mcp_listener import McpListener
from ratchet.engines.tool_server import Underway, in_words, listening
from ratchet.kernel import Misuse, RatchetError, sendable
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime

if TYPE_CHECKING:
    from ratchet.engines.mcp_listener import McpListener


# A character can take six bytes where JSON escapes it.
_ESCAPED = 6
_AROUND = 65_536


@asynccontextmanager
async def architect_listening(
    runtime: Runtime, loaded: Loaded, tokens: AgentTokens, *, api_token: str
) -> AsyncIterator[int]:
    """Answer at http://127.0.0.1:PORT/architect/mcp for the block; the value is the port.

    Who brings `api_token` may use every tool, who brings a token of `tokens` only those for agents, any other caller
    none. When the block is left, calls that still run are cancelled and have ended.
    """
    desk, callers = ArchitectService(runtime, loaded), Callers(tokens, api_token)
    most_bytes = _ESCAPED * max(loaded.settings.agents.feedback_bytes, LONGEST_QUESTION) + _AROUND
    calls = Underway[Any]()

    def make(address: str) -> McpListener:

        return ArchitectServer(desk, calls).listener(callers, address=address, most_bytes=most_bytes)

    async with listening(make, calls.close) as address:
        yield int(address.rpartition(":")[2])


_CALLER = "ratchet.caller"
_log = logger(__name__)


class ArchitectServer:
    """Hands what is called to the desk, each call until its end."""

    def __init__(self, desk: ArchitectService, calls: Underway[CallToolResult]) -> None:
        self._desk = desk
        self._calls = calls

    def listener(self, callers: Callers, *, address: str, most_bytes: int) -> McpListener:
        def door(scope: Scope) -> Response | None:
            given = Headers(scope=scope).get("authorization", "").encode("latin-1")
            scope[_CALLER] = callers.of(given)
            return _UNKNOWN if scope[_CALLER] is None else None

        mcp: Server[Any] = Server(
            "ratchet-architect",
            title="Ratchet's Architect",
            instructions="Makes agents, and changes them from feedback.",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        return McpListener(mcp, address=address, path=ARCHITECT_PATH, door=door, most_bytes=most_bytes)

    async def _list(self, context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(tool) for tool in usable_by(_caller(context)).values()])

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        # Many clients say null for what they leave out.
        given = {key: value for key, value in (params.arguments or {}).items() if value is not None}
        call = self._answer(_caller(context), params.name, given)
        answer = await self._calls.run(call)
        return _failed("the Architect ends; try again later") if answer is None else answer

    async def _answer(self, caller: ArchitectCaller, name: str, given: Mapping[str, Any]) -> CallToolResult:
        try:
            return _tool_result(await _tool(caller, name, given).run(self._desk, caller, given))
        except RatchetError as error:
            return _failed(in_words(error))
        except Exception:  # noqa: BLE001 - what it says is for the operator: it may speak of secrets
            _log.exception("a tool of the Architect failed", tool=name, caller=caller.actor)
            return _failed(f"{name} failed within the Architect; its log says why")


def _tool(caller: ArchitectCaller, name: str, given: Mapping[str, Any]) -> ArchitectTool:
    """The tool, if the caller may use it and the arguments fit. Raises `Misuse`."""
    usable = usable_by(caller)
    if name not in usable:
        raise Misuse(f"there is no tool {name[:80]!r} for you; there are: {', '.join(usable)}")
    try:
        validate_answer(given, usable[name].input_schema)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the arguments of {name} cannot be used: {error}") from None
    return usable[name]


_UNKNOWN = Response(
    "the bearer token is missing or wrong\n",
    status_code=401,
    headers={"WWW-Authenticate": 'Bearer realm="ratchet"'},
    media_type="text/plain",
)


def _caller(context: Any) -> ArchitectCaller:
    caller = context.request.scope[_CALLER]
    assert isinstance(caller, ArchitectCaller)
    return caller


def _listed(tool: ArchitectTool) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            # Every version stays, and so does its state: whatever is done can be taken back.
            destructive_hint=False,
            idempotent_hint=tool.reads or tool.repeatable,
            open_world_hint=not tool.reads,
        ),
    )


def _tool_result(value: Reply) -> CallToolResult:
    # Half of a surrogate pair, which a model may well write, cannot be sent.
    text = sendable(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=json.loads(text))


def _failed(reason: str) -> CallToolResult:
    plain = sendable(reason)
    return CallToolResult(content=[TextContent(type="text", text=plain)], is_error=True)
