"""The Architect's tools over MCP. Whoever calls sees only what it may use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from ratchet.agents.architect_server.caller import Caller, Callers
from ratchet.agents.architect_server.desk import Desk, Told
from ratchet.agents.architect_server.tools import ArchitectTool, usable_by
from ratchet.agents.gateway.routes import ARCHITECT_PATH
from ratchet.engines.answer import validate_answer
from ratchet.engines.mcp_listener import McpListener
from ratchet.engines.tool_calls import Underway, in_words
from ratchet.kernel import Misuse, RatchetError
from ratchet.observe.logs import logger

_CALLER = "ratchet.caller"
_log = logger(__name__)


class ArchitectServer:
    """Hands what is called to the desk, each call until its end."""

    def __init__(self, desk: Desk, calls: Underway[CallToolResult]) -> None:
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

    async def _answer(self, caller: Caller, name: str, given: Mapping[str, Any]) -> CallToolResult:
        try:
            return _told(await _tool(caller, name, given).run(self._desk, caller, given))
        except RatchetError as error:
            return _failed(in_words(error))
        except Exception:  # noqa: BLE001 - what it says is for the operator: it may speak of secrets
            _log.exception("a tool of the Architect failed", tool=name, caller=caller.actor)
            return _failed(f"{name} failed within the Architect; its log says why")


def _tool(caller: Caller, name: str, given: Mapping[str, Any]) -> ArchitectTool:
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


def _caller(context: Any) -> Caller:
    caller = context.request.scope[_CALLER]
    assert isinstance(caller, Caller)
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


def _told(value: Told) -> CallToolResult:
    # Half of a surrogate pair, which a model may well write, cannot be sent.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace").decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=json.loads(text))


def _failed(reason: str) -> CallToolResult:
    plain = reason.encode(errors="replace").decode()
    return CallToolResult(content=[TextContent(type="text", text=plain)], is_error=True)
