"""Real servers of agents, and a small real Architect, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN = "the-token-of-this-agent"
SECONDS = 60


def free_port() -> int:
    """One that the kernel gives to no process by itself, so that it is still free when a server starts."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextlib.contextmanager
def program(directory: Path, file: str, *ports: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A server, started as Ratchet starts it; it answers when the block begins and is gone after it."""
    process = subprocess.Popen(
        [sys.executable, file, *map(str, ports)],
        cwd=directory,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for(process, ports[0])
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_for(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            raise AssertionError(f"it ended: {process.communicate()[1]}")
        time.sleep(0.02)
    raise AssertionError("it does not answer")


@dataclass
class Architect:
    """What it was told, and where it answers."""

    url: str
    feedback: list[tuple[str, str]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextlib.contextmanager
def architect() -> Iterator[Architect]:
    """An MCP server with the Architect's tools for agents, at the Architect's path, for who brings the token.

    It also serves a runner of an agent `other`, in whose name nobody brings a token.
    """
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    known = Architect(f"http://127.0.0.1:{bound.getsockname()[1]}")
    server = uvicorn.Server(
        uvicorn.Config(_app(known), log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
    thread.start()
    try:
        deadline = time.monotonic() + SECONDS
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield known
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def _app(known: Architect) -> ASGIApp:
    inner = _tools(known).streamable_http_app(streamable_http_path="/mcp")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        known.requests.append(scope["path"])
        token = dict(scope["headers"]).get(b"authorization", b"").decode()
        expected = f"Bearer {TOKEN}" if scope["path"] == "/architect/mcp" else ""
        if token == expected and scope["path"].startswith(("/architect/mcp", "/agents/other")):
            await inner({**scope, "path": "/mcp"}, receive, send)
        else:
            await Response(status_code=401)(scope, receive, send)

    return app


def _tools(known: Architect) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("architect", log_level="WARNING")

    @server.tool()
    def send_feedback(message: str, severity: str) -> dict[str, int]:
        if message == "refuse":
            raise ValueError("no")
        known.feedback.append((message, severity))
        return {"feedback_id": 40 + len(known.feedback)}

    @server.tool()
    def ask_llm(
        prompt: str, system: str | None = None, schema: dict[str, Any] | None = None, model: str | None = None
    ) -> dict[str, Any]:
        known.asked.append({"prompt": prompt, "system": system, "schema": schema, "model": model})
        return {"text": f"you said {prompt}", "output": {"city": "Ulm"} if schema else None}

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def describe(name: str) -> dict[str, Any]:
        return {"result": name}

    return server
