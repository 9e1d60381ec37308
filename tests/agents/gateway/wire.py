"""HTTP by hand: callers and servers that say exactly what a test wants them to say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratchet.agents.contract import Role
from ratchet.agents.gateway import AgentRoute, Gateway, GatewayLimits
from tests.agents.gateway.book import Book
from tests.waiting import eventually_async

SECONDS = 120.0
ECHO = AgentRoute("echo", Role.RUNNER, None)
PATH = "/agents/echo/runner/mcp"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Message:
    """A request or an answer: its first line, its headers in lower case, its body."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.line.split()[1])


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for each in lines:
        name, _, value = each.partition(": ")
        assert name.lower() not in headers, f"{name} comes twice"
        headers[name.lower()] = value
    return line, headers


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    size = int((await reader.readuntil(b"\r\n")).strip(), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def read_message(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Message:
    """The next message; one without a length ends with the connection."""
    line, headers = await read_head(reader)
    if bodiless or line.startswith(("HTTP/1.1 1", "HTTP/1.1 204")):
        return Message(line, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        pieces = []
        while piece := await read_chunk(reader):
            pieces.append(piece)
        return Message(line, headers, b"".join(pieces))
    if "content-length" in headers:
        return Message(line, headers, await reader.readexactly(int(headers["content-length"])))
    return Message(line, headers, await reader.read() if line.startswith("HTTP") else b"")


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, bodiless: bool = False) -> Message:
        async with asyncio.timeout(SECONDS):
            return await read_message(self.reader, bodiless=bodiless)

    async def ask(self, data: bytes, *, bodiless: bool = False) -> Message:
        await self.send(data)
        return await self.answer(bodiless=bodiless)

    async def rest(self) -> bytes:
        """Whatever comes until the other side hangs up."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class Stand:
    """A gateway, its directory, and the server that the address of `echo` leads to."""

    gateway: Gateway
    book: Book
    received: list[Message] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2])

    def request(
        self, body: bytes = b"", *, method: str = "POST", path: str = PATH, **headers: str | None
    ) -> bytes:
        """A request; a header is given with `_` for `-`, and `None` leaves it out."""
        standard: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if body or method == "POST":
            standard["content_length"] = str(len(body))
        lines = [
            f"{name.replace('_', '-')}: {value}\r\n"
            for name, value in {**standard, **headers}.items()
            if value is not None
        ]
        return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1") + body

    @contextlib.asynccontextmanager
    async def caller(self) -> AsyncIterator[Caller]:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        try:
            yield caller
        finally:
            await caller.close()

    async def ask(self, data: bytes, *, bodiless: bool = False) -> Message:
        """The answer to one request on a connection of its own."""
        async with self.caller() as caller:
            return await caller.ask(data, bodiless=bodiless)

    async def empty(self) -> None:
        """Wait until no call is inside a server."""
        await eventually_async(lambda: not any(self.book.inside.values()))


@contextlib.asynccontextmanager
async def stand(handler: Handler | None = None, **options: Any) -> AsyncIterator[Stand]:
    """With a handler of connections, or a server that notes each request and answers `ok`."""
    limits = options.pop("limits", GatewayLimits())
    book = Book()
    gateway = Gateway(
        book, architect_port=options.pop("architect_port", lambda: None), limits=limits, **options
    )
    await gateway.listen("127.0.0.1", 0)
    standing = Stand(gateway, book)

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                standing.received.append(await read_message(reader))
                writer.write(OK)

    async with server(handler or note) as port:
        book.ports[ECHO] = port
        try:
            yield standing
        finally:
            await gateway.close(0)


@contextlib.asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[int]:
    """The port of a server that hands each connection to `handler`, and ends with all of them."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20)
    try:
        yield int(listening.sockets[0].getsockname()[1])
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
