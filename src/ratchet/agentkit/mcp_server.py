"""The HTTP side of an agent's server: MCP by the official library, behind uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ratchet.agentkit.errors import AgentKitError
from ratchet.agentkit.logs import has_secrets, log, without_secrets

_LONGEST_VERSION = 64
# Threads that anyio has for all calls, and the shares of them that a tool, or all resources and prompts, may fill:
# calls that never end must leave some to the others.
_THREADS, _SHARES = 40, 4


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function that is to be a tool."""

    name: str
    description: str
    function: Callable[..., Any]


def served(name: str, instructions: str | None, tools: Iterable[ToolFunction]) -> MCPServer[Any]:
    """The MCP server that has these tools. Raises what the library says of a function that can be none."""
    # Nobody is told of new tools while a version runs: they come with the next version, and Ratchet's gateway tells.
    server = MCPServer(
        name,
        instructions=instructions,
        version=_version(),
        subscriptions=False,
        middleware=[_hide_secrets, _log_calls, _announce_changes],
    )
    found = list(tools)
    blocking = sum(not inspect.iscoroutinefunction(tool.function) for tool in found)
    at_once = _THREADS // max(1, min(blocking, _SHARES))
    for tool in found:
        server.add_tool(_reporting(tool.function, at_once), name=tool.name, description=tool.description)
    return server


def _version() -> str:
    """The number of this version of the agent, which lies beside its code."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(Path("metadata.json").read_text(encoding="utf-8"))["version"])[
            :_LONGEST_VERSION
        ]
    return ""


async def _announce_changes(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Say in the answer to a hello that lists may change: they do when the session is led to another version."""
    answer = await call_next(ctx)
    if ctx.method == "initialize" and isinstance(answer, dict):
        for name in ("tools", "resources", "prompts"):
            if isinstance(known := answer.get("capabilities", {}).get(name), dict):
                known["listChanged"] = True
    return answer


def offer(
    server: MCPServer[Any],
    resources: Mapping[str, tuple[str, str | None, Callable[..., Any]]],
    prompts: Mapping[str, tuple[str, Callable[..., Any]]],
) -> None:
    """Add resources and prompts. Raises what the library says of a function that can be none."""
    free = asyncio.Semaphore(_THREADS // _SHARES)
    for uri, (text, mime_type, function) in resources.items():
        server.resource(uri, name=function.__name__, description=text, mime_type=mime_type)(
            _with_error_texts(function, free)
        )
    for name, (text, function) in prompts.items():
        server.prompt(name=name, description=text)(_with_error_texts(function, free))


def _with_error_texts(function: Callable[..., Any], free: asyncio.Semaphore) -> Callable[..., Any]:
    """The function, but what it raises is in the log and reaches its caller as a sentence."""

    def failure(error: BaseException) -> MCPError:
        return MCPError(_INTERNAL_ERROR, str(_failure(function, error)))

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waited(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except MCPError:
                raise
            except (Exception, SystemExit) as error:
                raise failure(error) from error

        return waited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MCPError:
            raise
        except (Exception, SystemExit) as error:
            raise failure(error) from error

    return _in_threads(called, free)


async def _hide_secrets(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    if not has_secrets():
        return await call_next(ctx)
    try:
        answer = await call_next(ctx)
    except MCPError as error:
        raise MCPError(error.error.code, without_secrets(error.error.message)) from None
    if isinstance(answer, dict) or answer is None:
        hidden: dict[str, Any] | None = without_secrets(answer)
        return hidden
    return type(answer).model_validate(without_secrets(answer.model_dump(mode="json", by_alias=True)))


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


def _reporting(function: Callable[..., Any], at_once: int) -> Callable[..., Any]:
    """The function, but what it raises is told to its caller, and what it returns is always structured."""
    is_async = inspect.iscoroutinefunction(function)
    wrapped = _async(function) if is_async else _in_threads(_sync(function), asyncio.Semaphore(at_once))
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


def _in_threads(function: Callable[..., Any], free: asyncio.Semaphore) -> Callable[..., Any]:
    """The function, run in a thread when one is `free`: that is taken until it ends, also when its caller has left."""

    @functools.wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        async with free:
            return await anyio.to_thread.run_sync(functools.partial(function, *args, **kwargs))

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


_PATH = "/mcp"
_INTERNAL_ERROR = -32603
_GRACE_SECONDS = 8.0
# Far longer than the gateway keeps a connection that is not used: one that both give up at the same moment costs the
# call that was on its way.
_KEPT_SECONDS = 600
# Behind the grace: what still runs then is a tool in a thread, which nothing but the end of the process ends.
_LAST_SECONDS = 2.0


class AgentListener(uvicorn.Server):
    """Serves at one port of this machine until a signal says to end, and then ends what was begun."""

    def __init__(self, server: MCPServer[Any], port: int) -> None:
        hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        server.streamable_http_app(
            # A page in a browser, for whose name somebody gave out this machine's address, is not let in.
            transport_security=TransportSecuritySettings(
                allowed_hosts=hosts,
                allowed_origins=[f"http://{host}:*" for host in ("127.0.0.1", "localhost")],
            ),
        )
        self.sessions = server.session_manager
        self._messages = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        super().__init__(
            uvicorn.Config(
                self._app,
                interface="asgi3",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
                timeout_keep_alive=_KEPT_SECONDS,
            )
        )

    async def listen(self, *bound: socket.socket) -> None:
        async with self.sessions.run():
            await self.serve(sockets=list(bound))

    async def asked(
        self, what: str, params: dict[str, Any] | None, session: bytes | None = None, *, method: str = "POST"
    ) -> bytes | None:
        """Answer one message of a client that is in this process; the session in the answer."""
        message = {
            "jsonrpc": "2.0",
            "method": what,
            **({} if params is None else {"id": 1, "params": params}),
        }
        came = [{"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}]
        given: dict[bytes, bytes] = {}
        headers = [
            (b"host", b"127.0.0.1:1"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            *([] if session is None else [(b"mcp-session-id", session)]),
        ]

        async def receive() -> Any:
            return came.pop() if came else await asyncio.Event().wait()

        async def send(event: Any) -> None:
            given.update(event.get("headers", ()))

        scope = {
            "type": "http",
            "method": method,
            "path": _PATH,
            "raw_path": _PATH.encode(),
            "query_string": b"",
            "headers": headers,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
        }
        await self._app(scope, receive, send)
        return given.get(b"mcp-session-id")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _end_at_the_latest()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._quiet.wait()
        # What is open now are streams on which clients wait for news that will not come.
        for connection in list(self.server_state.connections):
            connection.transport.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != _PATH:
            await Response(status_code=404)(scope, receive, send)
        elif scope["method"] == "POST":
            with self._counted():
                await self.sessions.handle_request(scope, receive, send)
        else:
            await self.sessions.handle_request(scope, receive, send)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._messages += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._messages -= 1
            if self._messages == 0:
                self._quiet.set()


async def practise() -> None:
    """Serve a client as every server does, without a port."""

    def practice(number: int, words: list[str], options: dict[str, str] | None = None) -> dict[str, int]:
        return {"number": number + len(words) + len(options or {})}

    listener = AgentListener(served("practice", None, [ToolFunction("practice", "", practice)]), 1)
    listener.config.load()
    use = {"name": "practice", "arguments": {"number": 1, "words": ["x"]}}
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    async with listener.sessions.run():
        session = await listener.asked("initialize", greeting)
        await listener.asked("notifications/initialized", None, session)
        await listener.asked("tools/list", {}, session)
        for _ in range(2):
            await listener.asked("tools/call", use, session)
        await listener.asked("", None, session, method="DELETE")


def _end_at_the_latest() -> None:
    def end() -> None:
        log.warning("calls did not end within %g s and were given up", _GRACE_SECONDS)
        os._exit(1)

    timer = threading.Timer(_GRACE_SECONDS + _LAST_SECONDS, end)
    timer.daemon = True
    timer.start()
