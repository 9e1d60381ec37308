"""Sessions of clients that outlive the server they began with.

A session keeps the id that its client was given, wherever it leads. When the address moves to another version, the
gateway says the client's hello again there, and what the client sends from then on goes into the session that this
opens; calls under way end where they began. A client that the new version does not understand keeps the old one.
Streams of news are led over, too, and tell which lists are others now.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httptools

from ratchet.agents.contract import Role
from ratchet.agents.gateway.request import ProxyRequest, is_session
from ratchet.agents.gateway.routes import AGENT_PATH, AgentRoute, Directory, Entered, SessionOver
from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger

_log = logger(__name__)
_MOST_SESSIONS = 10_000
# A server that is slower with its hello is not followed to.
_HELLO_SECONDS = 10.0
_MOST_BYTES = 1024 * 1024
_AT_ONCE = 8
_PROTOCOL = re.compile(rb"(?im)^mcp-protocol-version:[ \t]*([\x21-\x7e]{1,64})[ \t]*\r$")
LISTS = ("tools", "resources", "prompts")
_Key = tuple[str, Role, str]


@dataclass(eq=False, slots=True)
class Stay:
    """A session with one server, which knows it as `session`, and what was asked there and is not answered yet."""

    session: str
    server: Entered
    requests: set[ProxyRequest] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class GatewaySession:
    """`hello` is what the client said first; `left` are the servers where calls of it are still under way."""

    id: str
    route: AgentRoute
    hello: bytes
    stay: Stay
    used: float
    left: list[Stay] = field(default_factory=list)
    keeps: Entered | None = None
    """The server that it stays with, since it could not follow to the next."""
    lines: bytes = b""
    changed: set[str] = field(default_factory=set)
    """The lists that are others now, of which no stream has told the client yet."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One caller at a time leads a session over, or it would be opened twice."""

    @property
    def key(self) -> _Key:
        return self.route.agent, self.route.role, self.id

    def take_news(self) -> bytes:
        """Events that tell the client which lists are others now; once."""
        names = [name for name in LISTS if name in self.changed]
        self.changed.clear()
        messages = ({"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed"} for name in names)
        return b"".join(f"event: message\ndata: {json.dumps(each)}\n\n".encode() for each in messages)

    def stay_for(self, request: ProxyRequest) -> Stay:
        """Where a message belongs: an answer to a question of a server, or a word about a call, where that is."""
        busy = [stay for stay in self.left if stay.requests]
        if busy and request.complete and request.head.method == b"POST":
            message = _parsed(b"".join(request.parts))
            if isinstance(message, dict) and "id" in message and "method" not in message:
                return busy[-1]
            if isinstance(message, dict) and message.get("method") == "notifications/cancelled":
                wanted = (message.get("params") or {}).get("requestId")
                return next((stay for stay in busy if wanted in map(_id, stay.requests)), self.stay)
        return self.stay


@dataclass(eq=False, slots=True)
class SessionCall:
    """A call in a session, which has entered a server; see `Entered`. A stream goes with its session to the next."""

    sessions: ClientSessions
    session: GatewaySession
    stay: Stay
    entered: Entered
    request: ProxyRequest

    @property
    def port(self) -> int:
        return self.entered.port

    @property
    def commit(self) -> str:
        return self.entered.commit

    @property
    def is_left(self) -> bool:
        return self.entered.is_left

    @property
    def lists(self) -> Mapping[str, str]:
        return self.entered.lists

    @property
    def renamed(self) -> bytes | None:
        """What the client calls the session, where the server has another name for it."""
        return None if self.stay.session == self.session.id else self.session.id.encode()

    async def go_on(self) -> None:
        """Enter the server that the session leads to now, and leave the one before."""
        stay, entered = await self.sessions.entry(self.session, self.request)
        self.entered.leave()
        self.stay, self.entered = stay, entered

    def broke_off(self) -> None:
        self.entered.broke_off()

    def leave(self) -> None:
        self.entered.leave()
        self.stay.requests.discard(self.request)
        self.sessions.part(self.session)

    def session_opened(self, session: str) -> None:
        """It is open already."""

    def session_closed(self, session: str) -> None:
        self.sessions.end(self.session)


class ClientSessions:
    """Those of all clients of a gateway, the one that was used last behind the others."""

    def __init__(self, directory: Directory, idle_seconds: float) -> None:
        self._directory = directory
        self._idle_seconds = idle_seconds
        self._known: dict[_Key, GatewaySession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def enter(self, route: AgentRoute, request: ProxyRequest) -> Entered:
        """The server for a call. Raises what `Directory.enter` does."""
        asked = request.head.session
        session = None if asked is None else self._known.get((route.agent, route.role, asked))
        if session is None or session.route.version != route.version:
            return await self._directory.enter(route, asked, request)
        self._use(session)
        if request.head.method != b"GET":
            session.lines = request.head.lines
        return SessionCall(self, session, *await self.entry(session, request), request)

    def begin(self, request: ProxyRequest, entered: Entered, session: str) -> None:
        """Note a session that a client began with this request. One whose hello is not known cannot be led over."""
        entered.session_opened(session)
        hello = b"".join(request.parts)
        if not isinstance(request.route, AgentRoute) or not request.complete or not _is_hello(hello):
            return
        now = asyncio.get_running_loop().time()
        begun = GatewaySession(session, request.route, hello, Stay(session, entered), now)
        self._known.pop(begun.key, None)
        self._known[begun.key] = begun
        while len(self._known) > _MOST_SESSIONS:
            del self._known[next(iter(self._known))]

    def end(self, session: GatewaySession) -> None:
        """The client has ended it."""
        self._known.pop(session.key, None)
        for stay in (*session.left, session.stay):
            stay.server.session_closed(stay.session)
        session.left.clear()

    def part(self, session: GatewaySession) -> None:
        """Take leave of the servers where nothing is under way any more."""
        if session.left:
            for stay in [each for each in session.left if not each.requests]:
                session.left.remove(stay)
                stay.server.session_closed(stay.session)

    def look(self, now: float) -> None:
        """Forget those that are silent."""
        while self._known:
            session = next(iter(self._known.values()))
            if session.used > now - self._idle_seconds or session.stay.requests:
                return
            del self._known[session.key]

    def follow(self, agent: str) -> None:
        """The address of an agent leads to another version: lead its sessions there."""
        waiting = [each for each in self._known.values() if each.route.agent == agent]
        for session in waiting:
            session.keeps = None
        if waiting:
            task = asyncio.get_running_loop().create_task(self._follow_all(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _use(self, session: GatewaySession) -> None:
        session.used = asyncio.get_running_loop().time()
        if self._known.pop(session.key, None) is not None:
            self._known[session.key] = session

    async def entry(self, session: GatewaySession, request: ProxyRequest) -> tuple[Stay, Entered]:
        """Enter the server that the session leads to; where that has ended, or another took its place, the next one."""
        for _ in range(3):
            stay = session.stay_for(request)
            try:
                entered = await self._directory.enter(session.route, stay.session, request)
            except SessionOver:
                if not await self._follow(session, stay):
                    raise
                continue
            if stay is session.stay and self._is_to_follow(stay.server, session):
                entered.leave()
                await self._follow(session, stay)
                continue
            if request.head.method != b"GET":
                stay.requests.add(request)
            request.upstream = None if stay.session == session.id else stay.session.encode()
            return stay, entered
        raise SessionOver(f"this session with {session.route.agent} is over", hint="begin a new one")

    @staticmethod
    def _is_to_follow(server: Entered, session: GatewaySession) -> bool:
        return server.is_left and session.keeps is not server

    async def _follow_all(self, sessions: Iterable[GatewaySession]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def follow(session: GatewaySession) -> None:
            async with gate:
                with contextlib.suppress(RatchetError):
                    if self._is_to_follow(session.stay.server, session):
                        await self._follow(session, session.stay)

        await asyncio.gather(*(follow(each) for each in sessions))

    async def _follow(self, session: GatewaySession, old: Stay) -> bool:
        """Lead a session over from where it is; whether it is elsewhere now."""
        async with session.lock:
            if session.stay is not old:
                return True
            new = await self._directory.enter(session.route, None, None)
            try:
                opened = await _opened(new.port, session)
                if opened is None or session.key not in self._known:
                    session.keeps = old.server
                    return False
                new.session_opened(opened)
            finally:
                new.leave()
            session.changed |= _changed(old.server.lists, new.lists)
            session.stay = Stay(opened, new)
            # GETs of the old server are cut by the move itself.
            session.left.append(old)
            session.moved.set()
            session.moved = asyncio.Event()
            self.part(session)
            return True


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    return {name for name in LISTS if old.get(name) != new.get(name)}


async def _opened(port: int, session: GatewaySession) -> str | None:
    """Say the client's hello to a server; the session that this opened, or none where the client could not have."""
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            answer = await _post(port, session.hello)
            opened, welcome = answer.headers.get(b"mcp-session-id"), _welcome(answer)
            if answer.status != 200 or opened is None or not is_session(opened) or welcome is None:
                raise _CannotFollow(f"it answered the hello with {answer.status}")
            spoken = welcome.get("protocolVersion")
            agreed = _PROTOCOL.search(session.lines)
            if agreed is not None and spoken != agreed[1].decode():
                raise _CannotFollow(f"it speaks {spoken!r}, the client {agreed[1].decode()!r}")
            begun = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            more = [(b"mcp-session-id", opened), (b"mcp-protocol-version", str(spoken).encode())]
            await _post(port, begun, more)
            return opened.decode("ascii")
    except (OSError, TimeoutError, ValueError, _CannotFollow, httptools.HttpParserError) as error:
        agent = session.route.agent
        _log.info("a session stays with the version that it began with", agent=agent, reason=str(error))
        return None


class _CannotFollow(Exception):
    """The new version is not one that the client could speak with as it does now."""


class _Answer:
    """Takes an answer to its end."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.is_over = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if len(self.body) > _MOST_BYTES:
            raise ValueError("its answer is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_over = self.status >= 200


async def _post(port: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> _Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        headers = [
            (b"host", b"127.0.0.1:%d" % port),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *more,
        ]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        writer.write(b"POST %b HTTP/1.1\r\n%b\r\n%b" % (AGENT_PATH.encode(), lines, body))
        answer = _Answer()
        while not answer.is_over and (data := await reader.read(65_536)):
            answer.feed(data)
        return answer
    finally:
        writer.close()


def _welcome(answer: _Answer) -> dict[str, Any] | None:
    """The result of a hello, which is JSON or the event of a stream."""
    lines = bytes(answer.body).splitlines()
    events = [line.removeprefix(b"data:") for line in lines if line.startswith(b"data:")]
    for message in map(_parsed, events or [bytes(answer.body)]):
        if isinstance(message, dict) and isinstance(result := message.get("result"), dict):
            return result
    return None


def _is_hello(body: bytes) -> bool:
    if b'"initialize"' not in body:
        return False
    message = _parsed(body)
    return isinstance(message, dict) and message.get("method") == "initialize"


def _id(request: ProxyRequest) -> Any:
    message = _parsed(b"".join(request.parts))
    return message.get("id") if isinstance(message, dict) else None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
