"""From functions to the tools of an MCP server."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from ratchet.agentkit.errors import AgentKitError
from ratchet.agentkit.logs import log


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that is to be a tool."""

    name: str
    description: str
    function: Callable[..., Any]


def served(name: str, instructions: str | None, tools: Iterable[ToolFunction]) -> MCPServer[Any]:
    """The MCP server that has these tools. Raises what the library says of a function that can be none."""
    # Nobody is told of new tools while a version runs: they come with the next version.
    server = MCPServer(name, instructions=instructions, subscriptions=False, middleware=[_log_calls])
    for tool in tools:
        server.add_tool(_told(tool.function), name=tool.name, description=tool.description)
    return server


async def _log_calls(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if ctx.method != "tools/call":
        return await call_next(ctx)
    tool = (ctx.params or {}).get("name")
    began = time.monotonic()
    outcome = "given up"
    try:
        answer = await call_next(ctx)
        outcome = "failed" if _failed(answer) else "done"
        return answer
    except Exception as error:
        outcome = f"refused ({str(error)[:200]!r})"
        raise
    finally:
        log.info("call %.100r %s in %.1f ms", tool, outcome, 1000 * (time.monotonic() - began))


def _failed(answer: HandlerResult) -> bool:
    # The library hands over what goes onto the wire, but promises no more than one of the two.
    return bool(answer.get("isError") if isinstance(answer, dict) else getattr(answer, "is_error", False))


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but what it raises is told to its caller, and what it returns is always structured."""
    wrapped = _async(function) if inspect.iscoroutinefunction(function) else _sync(function)
    signature = inspect.signature(function, eval_str=True)
    wrapped.__signature__ = signature.replace(return_annotation=_structured(signature.return_annotation))  # type: ignore[attr-defined]
    return wrapped


def _async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except (ToolError, MCPError):
            raise
        except (Exception, SystemExit) as error:
            raise _failure(function, error) from error

    return called


def _sync(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (ToolError, MCPError):
            raise
        except (Exception, SystemExit) as error:
            raise _failure(function, error) from error

    return called


def _failure(function: Callable[..., Any], error: BaseException) -> ToolError:
    if isinstance(error, AgentKitError):
        log.warning("%s failed: %s", function.__name__, error)
        return ToolError(str(error))
    log.error("%s failed", function.__name__, exc_info=error)
    return ToolError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def _structured(returned: Any) -> Any:
    """The library makes nothing of a bare `dict` or `list`, nor of a function that does not say what it returns."""
    if returned in (inspect.Signature.empty, Any):
        return Any | None
    if returned is dict:
        return dict[str, Any]
    return list[Any] if returned is list else returned
