"""Serving the MCP face: over stdio to the program that started this one, or over HTTP to several."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from starlette.types import ASGIApp

from ratchet.config import Loaded
from ratchet.engines.mcp_listener import McpListener
from ratchet.kernel import Misuse
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime
from ratchet.runtime.signals import StopSignals
from ratchet.server.app import create_app
from ratchet.server.authorisation import Authorisation
from ratchet.server.body_limit import MAX_BODY_BYTES
from ratchet.server.caller import HEADER
from ratchet.server.listening import listen, url_of
from ratchet.server.mcp.asking import Asker, operator_headers
from ratchet.server.mcp.face import Face
from ratchet.server.mcp.mcp_side import AskerOf, McpSide
from ratchet.server.request_ids import RequestIds
from ratchet.server.token import Token, find_token
from ratchet.tools.registry import open_toolbox

PATH = "/mcp"
_FACE = "mcp"
_log = logger(__name__)
# Requests that wait for the database at once.
_THREADS = 16
_TOKEN_HINT = "start `ratchet mcp` with --project-token-file"


@dataclass(frozen=True, slots=True)
class Answering:
    """Where the face answers, and the file with its token; no file when the token was configured."""

    url: str
    token_path: Path | None


def serve_stdio(
    runtime: Runtime, loaded: Loaded, *, allow_actions: bool = False, project_token: str | None = None
) -> None:
    """Answer on stdout what is asked on stdin, until that ends. Nothing else may be written to stdout."""
    side = operator_side(runtime, loaded, allow_actions=allow_actions, project_token=project_token)
    asyncio.run(_on_stdio(side))


def operator_side(
    runtime: Runtime, loaded: Loaded, *, allow_actions: bool = False, project_token: str | None = None
) -> McpSide:
    """The face for whoever can read the ledger anyway. `project_token` opens the things of its project."""
    # Known to nobody, and for requests that never leave this process.
    token = secrets.token_urlsafe(32)
    app = create_app(runtime, loaded, token, face=_FACE)
    asker = Asker(app, operator_headers(token, project_token), _TOKEN_HINT)
    return _side(app, runtime, lambda _context: asker, allow_actions=allow_actions)


def serve_http(
    runtime: Runtime,
    loaded: Loaded,
    *,
    host: str,
    port: int,
    allow_actions: bool = False,
    ready: Callable[[Answering], None] | None = None,
) -> None:
    """Answer at http://HOST:PORT/mcp until SIGTERM or SIGINT, to whoever brings the API's token or a project's.

    `ready` is called once requests are answered. Call it in the main thread. Raises `ConfigError` rather than listen
    where strangers could come in without a token that somebody chose, and `Conflict` for a port that is taken.
    """
    token = find_token(loaded)
    with StopSignals() as signals, listen(host, port, token_configured=token.configured) as bound:
        app = create_app(runtime, loaded, token.value, face=_FACE)
        side = _side(app, runtime, partial(_asker_of, app), allow_actions=allow_actions)
        listener = _listener(side, runtime, token, bound, host)
        answering = Answering(url_of(bound) + PATH, token.path)

        def started() -> None:
            _log.info("answering over MCP", url=answering.url, actions=allow_actions)
            if ready is not None:
                ready(answering)

        asyncio.run(_on_http(side, listener, bound, signals, started))


def _side(app: FastAPI, runtime: Runtime, asker_of: AskerOf, *, allow_actions: bool) -> McpSide:
    # Definitions of tools that were put on the disk are recorded when somebody looks. That is done here, in the name of
    # whoever starts this, so that no tool which only reads has to.
    open_toolbox(runtime.ledger, runtime.settings, runtime.home).close()
    face = Face(app, runtime.ledger, allow_actions=allow_actions)
    return McpSide(face, asker_of, allow_actions=allow_actions)


async def _on_stdio(side: McpSide) -> None:
    from mcp.server.stdio import stdio_server

    current_default_thread_limiter().total_tokens = _THREADS
    async with stdio_server() as (reading, writing):
        try:
            await side.server.run(reading, writing, side.server.create_initialization_options())
        finally:
            await side.close()


async def _on_http(
    side: McpSide,
    listener: McpListener,
    bound: socket.socket,
    signals: StopSignals,
    started: Callable[[], None],
) -> None:
    current_default_thread_limiter().total_tokens = _THREADS
    asked = asyncio.Event()
    signals.when_asked(partial(asyncio.get_running_loop().call_soon_threadsafe, asked.set))
    serving = asyncio.create_task(listener.listen(bound))
    await listener.answering(serving)
    started()
    await asked.wait()
    await side.close()
    listener.should_exit = True
    await serving


def _listener(side: McpSide, runtime: Runtime, token: Token, bound: socket.socket, host: str) -> McpListener:
    def around(app: ASGIApp) -> ASGIApp:
        return RequestIds(Authorisation(app, token.value, runtime.ledger))

    address, *others = _addresses(bound, host)
    return McpListener(
        side.server,
        address=address,
        other_addresses=others,
        path=PATH,
        around=around,
        most_bytes=MAX_BODY_BYTES,
    )


def _addresses(bound: socket.socket, host: str) -> list[str]:
    """What a request may name as its host: where this listens, as an address and as it was called.

    A page in a browser that has a name lead here is refused by that, so any name at all is not an answer.
    """
    found, port = bound.getsockname()[:2]
    address = ipaddress.ip_address(found.partition("%")[0])
    if address.is_unspecified:
        raise Misuse(
            f"{host} is every address of this machine, so nobody can tell what requests may call it",
            hint="name one address or one name of this machine",
        )
    names = [
        f"[{found}]" if address.version == 6 else found,
        host,
        *(["localhost"] if address.is_loopback else []),
    ]
    return [f"{name}:{port}" for name in dict.fromkeys(names)]


def _asker_of(app: ASGIApp, context: Any) -> Asker:
    """In the name of whoever sent the request: with its own headers, so that the API decides what it may."""
    headers = context.request.headers
    brought = {name: headers[name] for name in ("Authorization", HEADER) if name in headers}
    return Asker(app, [brought])
