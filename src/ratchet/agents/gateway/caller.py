"""A caller's connection: each request is admitted, forwarded and answered, one after the other."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from ratchet.agents.call_record import MOST_BYTES, CallRecorder, NotedCall
from ratchet.agents.gateway.backend import (
    AnswerHead,
    BodySource,
    ConnectionBroken,
    NotTaken,
    Pool,
    ProxyResponse,
)
from ratchet.agents.gateway.request import (
    METHODS,
    ParserStage,
    ProxyRequest,
    RequestHead,
    RequestParser,
    is_session,
)
from ratchet.agents.gateway.routes import (
    AgentRoute,
    Architect,
    Entered,
    GatewayLimits,
    Refusal,
    route_of,
    shown,
)
from ratchet.agents.gateway.sessions import ClientSessions, SessionCall
from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger

# A server that does not take a request has just ended. After these pauses its host has noticed, and leads elsewhere.
_PAUSES_SECONDS = (0.0, 0.05, 0.5)


class BrokenOff(Exception):
    """The answer ended in the middle, after its caller had heard the beginning."""


class Forwarding:
    def __init__(
        self,
        pool: Pool,
        architect_port: Callable[[], int | None],
        sessions: ClientSessions,
        recorder: CallRecorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._sessions = sessions
        self._pool = pool
        self._architect_port = architect_port

    async def forward(self, request: ProxyRequest, transport: asyncio.Transport, source: BodySource) -> None:
        """Have a request answered. Raises `Refusal` when no server does, and `BrokenOff`.

        A request is brought again only if it is certain that no server has read it.
        """
        reason = ""
        for number, pause in enumerate(_PAUSES_SECONDS):
            if pause:
                await asyncio.sleep(pause)
            entered = await self._enter(request)
            answer = ProxyResponse(request.head, transport, partial(self._note_session, request, entered))
            began = self._note(request, answer)
            lost: str | None = "the caller gave up"
            try:
                if isinstance(entered, SessionCall):
                    answer.session = entered.renamed
                if isinstance(entered, SessionCall) and request.head.method == b"GET":
                    await self._stream(entered, request, answer, source)
                else:
                    await self._through(entered.port, request, answer, source, new=number > 0)
                lost = None
                return
            except NotTaken as error:
                reason, answer.heard = str(error), None
            except Refusal as error:
                answer.heard = None
                if answer.begun:
                    raise BrokenOff from error
                raise
            except ConnectionBroken as error:
                lost = f"its server ended: {error}"
                entered.broke_off()
                _log.warning(
                    "a server left a call without an answer", to=shown(request.route), reason=str(error)
                )
                if answer.begun:
                    raise BrokenOff from error
                raise Refusal(
                    502,
                    f"{shown(request.route)} did not answer: {error}",
                    hint="what it did is not known; `ratchet agent logs NAME --printed` shows how it ended",
                ) from error
            finally:
                self._record(request, entered, answer, began, lost)
                entered.leave()
        raise Refusal(502, f"{shown(request.route)} does not take calls: {reason}", hint="try again")

    async def _stream(
        self, call: SessionCall, request: ProxyRequest, answer: ProxyResponse, source: BodySource
    ) -> None:
        """Carry the news of a session, wherever that is led."""
        session = call.session
        answer.news = session.take_news
        while await _until_moved(session.moved, self._through(call.port, request, answer, source, new=True)):
            if not answer.lead_over():
                raise ConnectionBroken("it was in the middle of a message when the session moved")
            await call.go_on()

    def _note(self, request: ProxyRequest, answer: ProxyResponse) -> float:
        """Have the answer heard, if this may be a call of a tool; when it began."""
        is_agent = isinstance(request.route, AgentRoute)
        if self._recorder is not None and is_agent and request.head.method == b"POST":
            answer.heard = bytearray()
        return time.monotonic()

    def _record(
        self, request: ProxyRequest, entered: Entered, answer: ProxyResponse, began: float, lost: str | None
    ) -> None:
        if answer.heard is None or self._recorder is None or not isinstance(request.route, AgentRoute):
            return
        body, route = b"".join(request.parts), request.route
        # Of a long body only the beginning is held here.
        is_cut = request.size > len(body) or max(len(body), len(answer.heard)) > MOST_BYTES
        noted = NotedCall(
            route.agent,
            entered.commit,
            str(route.role),
            body[:MOST_BYTES],
            bytes(answer.heard[:MOST_BYTES]),
            time.monotonic() - began,
            recorded=not is_cut and self._recorder.wants_next(),
            lost=lost,
            is_cut=is_cut,
        )
        self._recorder.note(noted)

    def _note_session(self, request: ProxyRequest, entered: Entered, head: AnswerHead) -> None:
        """Tell of a session that begins or ends with this answer, before the caller can use what it learns."""
        if not 200 <= head.status < 300:
            return
        asked = request.head.session
        if asked is None:
            opened = head.value(b"mcp-session-id")
            if opened is not None and is_session(opened):
                self._sessions.begin(request, entered, opened.decode("ascii"))
        elif request.head.method == b"DELETE":
            entered.session_closed(asked)

    async def _enter(self, request: ProxyRequest) -> Entered:
        if isinstance(request.route, Architect):
            port = self._architect_port()
            if port is None:
                raise Refusal(503, "the Architect is not up", hint="try again")
            return _AtArchitect(port)
        try:
            return await self._sessions.enter(request.route, request)
        except RatchetError as error:
            raise Refusal(error.http_status, str(error), hint=error.hint) from error

    async def _through(
        self, port: int, request: ProxyRequest, answer: ProxyResponse, source: BodySource, *, new: bool
    ) -> None:
        try:
            # What is not here as a whole could not be brought again, should a kept connection turn out to be closed.
            backend = await self._pool.take(port, new=new or not request.complete)
        except OSError as error:
            raise NotTaken(error.strerror or "it takes no connections") from error
        try:
            reusable = await backend.carry(request, answer, source)
        except BaseException:
            backend.abort()
            raise
        if reusable and request.complete:
            self._pool.give_back(backend)
        else:
            backend.abort()


class _AtArchitect(NamedTuple):
    """The Architect keeps its sessions to itself."""

    port: int
    commit: str = ""
    is_left: bool = False
    lists: Mapping[str, str] = {}

    def broke_off(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def session_opened(self, session: str) -> None:
        pass

    def session_closed(self, session: str) -> None:
        pass


async def _until_moved(moved: asyncio.Event, carrying: Coroutine[Any, Any, None]) -> bool:
    """Carry a stream until it ends, or its session is led to another server: whether that was so."""
    stream, waiting = asyncio.create_task(carrying), asyncio.create_task(moved.wait())
    try:
        await asyncio.wait({stream, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if stream.done():
            await stream
        return not stream.done()
    finally:
        for task in (stream, waiting):
            task.cancel()
        await asyncio.gather(stream, waiting, return_exceptions=True)


_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HTTP_PORT = 80


class ListenAddress(NamedTuple):
    """An address that was connected to: the hosts it goes by, and whether strangers can reach it."""

    hosts: frozenset[bytes]
    guarded: bool


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


@lru_cache(maxsize=64)
def door_at(address: str, port: int, *, guarded: bool, names: tuple[str, ...]) -> ListenAddress:
    """A name with a port counts as it is; one without counts alone and with the port of the door."""
    bare = address.partition("%")[0]
    own = [*_LOOPBACK_NAMES, f"[{bare}]" if ":" in bare else bare]
    hosts = {f"{name}:{port}" for name in own}
    if port == _HTTP_PORT:
        hosts.update(own)
    for name in names:
        hosts.add(name)
        if not name.rpartition(":")[2].isdigit():
            hosts.add(f"{name}:{port}")
    return ListenAddress(frozenset(host.lower().encode() for host in hosts), guarded)


def admit(
    head: RequestHead, door: ListenAddress, token: bytes | None, *, has_keys: bool = False
) -> AgentRoute | Architect:
    """Where a request may go. Raises `Refusal`. With `has_keys`, a gatekeeper is asked
    about tokens later.

    A page of another site that has its name resolved to this machine shows it in Host or Origin.
    """
    if head.host not in door.hosts:
        raise Refusal(
            403, f"{_shown(head.host)} is not served here", hint="use the address that Ratchet prints"
        )
    if head.origin is not None and not _own(head.origin, door):
        raise Refusal(403, f"pages of {_shown(head.origin)} may not call agents")
    route = route_of(head.target)
    if route is None:
        raise Refusal(
            404,
            f"{_shown(head.target)} is no address",
            hint="/agents/NAME/runner/mcp, /agents/NAME@VERSION/runner/mcp or /architect/mcp, and tuner for runner",
        )
    if head.method not in METHODS:
        allowed = b", ".join(METHODS).decode()
        raise Refusal(405, f"{_shown(head.method)} is not served here", header=f"allow: {allowed}")
    # The Architect knows more kinds of tokens than this one, and looks for itself.
    if door.guarded and not isinstance(route, Architect) and not _has_token(head, token) and not has_keys:
        raise Refusal(401, "the token is missing or wrong", header="www-authenticate: Bearer")
    return route


def _own(origin: bytes, door: ListenAddress) -> bool:
    scheme, separator, authority = origin.lower().partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and authority in door.hosts


def _has_token(head: RequestHead, token: bytes | None) -> bool:
    scheme, _, given = (head.authorization or b"").partition(b" ")
    return token is not None and scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), token)


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("latin-1"))


_log = logger(__name__)
# Requests that a caller may send ahead before it is no longer read from.
_MOST_AHEAD = 16


class Gatekeeper(Protocol):
    """Knows who may call what."""

    async def check(self, route: AgentRoute, authorization: bytes | None, *, guarded: bool) -> None:
        """Pass, or raise a `RatchetError`. `guarded`: other machines reach the door that was used."""
        ...


class House(Protocol):
    """What all callers share."""

    limits: GatewayLimits
    forwarding: Forwarding
    token: bytes | None
    keeper: Gatekeeper | None

    def welcome(self, caller: CallerConnection, address: str, port: int) -> ListenAddress | None:
        """The door at that address, which a caller has come through; `None` when the house is full."""
        ...

    def say_goodbye(self, caller: CallerConnection) -> None: ...


class CallerConnection(asyncio.Protocol):
    def __init__(self, house: House) -> None:
        self._house = house
        self._limits = house.limits
        self._loop = asyncio.get_running_loop()
        self._reading = RequestParser(house.limits, self._admit, self._invite, self._put)
        self._transport: asyncio.Transport
        self._door: ListenAddress
        self.serving: asyncio.Task[None] | None = None
        # What was read and is not answered yet; a refusal is the last of a connection.
        self._ahead: deque[ProxyRequest | Refusal] = deque()
        self._more: asyncio.Future[None] | None = None
        self._current: ProxyRequest | None = None
        self._is_last = False
        self._server_is_slow = False
        self.waits_since = self._loop.time()
        # While more was said than the caller has read.
        self._unread_since: float | None = None
        self._was_read: asyncio.Future[None] | None = None

    def finish(self) -> None:
        """Serve what is under way, then hang up."""
        self._is_last = True
        # A GET waits for news, and has nothing to finish.
        if self.waits or (self._current is not None and self._current.head.method == b"GET"):
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def look(self, now: float) -> None:
        """Part from a caller that takes too long."""
        limits, stage = self._limits, self._reading.stage
        if stage is ParserStage.WASTE:
            if self.waits and now - self._reading.since > limits.linger_seconds:
                self._transport.abort()
        elif self._unread_since is not None and now - self._unread_since > limits.stalled_seconds:
            self._transport.abort()
        elif stage is not ParserStage.NOTHING:
            self._reading.refuse_late(now, is_held=self._is_held())
        elif self.waits and now - self.waits_since > limits.idle_seconds:
            self._transport.close()

    def hold(self) -> None:
        self._server_is_slow = True
        self._regulate()

    def go_on(self) -> None:
        self._server_is_slow = False
        self._regulate()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        door = self._house.welcome(self, *transport.get_extra_info("sockname")[:2])
        if door is None:
            transport.write(Refusal(503, "too many connections", hint="try again").encoded(close=True))
            transport.close()
            return
        self._door = door
        self.serving = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        if self.serving is not None:
            self.serving.cancel()
        self._house.say_goodbye(self)

    def data_received(self, data: bytes) -> None:
        if self.serving is not None:
            self._reading.feed(data)

    def pause_writing(self) -> None:
        self._unread_since = self._loop.time()
        if self._current is not None and self._current.carrier is not None:
            self._current.carrier.pause_reading()

    def resume_writing(self) -> None:
        self._unread_since = None
        if self._current is not None and self._current.carrier is not None:
            self._current.carrier.resume_reading()
        if self._was_read is not None and not self._was_read.done():
            self._was_read.set_result(None)

    async def _serve(self) -> None:
        while not self._is_last:
            if self._unread_since is not None:
                self._was_read = self._loop.create_future()
                await self._was_read
            self._invite()
            item = await self._next()
            if isinstance(item, Refusal):
                self._is_last = True
                self._transport.write(item.encoded(close=True))
            else:
                await self._answer(item)
        self._part()

    async def _next(self) -> ProxyRequest | Refusal:
        if not self._ahead:
            self.waits_since = self._loop.time()
            self._more = self._loop.create_future()
            await self._more
        item = self._ahead.popleft()
        self._regulate()
        return item

    async def _answer(self, request: ProxyRequest) -> None:
        self._current = request
        self._is_last = self._is_last or not request.head.persistent
        try:
            await self._let_in(request)
            await self._house.forwarding.forward(request, self._transport, self)
        except Refusal as refusal:
            self._is_last = self._is_last or not request.complete
            bodiless = request.head.method == b"HEAD"
            self._transport.write(refusal.encoded(close=self._is_last, bodiless=bodiless))
        except BrokenOff:
            self._transport.abort()
        except Exception:  # noqa: BLE001 - the last place: the caller gets an end, the log gets the reason
            _log.exception("a call could not be forwarded", target=request.head.target.decode("latin-1"))
            self._transport.abort()
        finally:
            self._current = None
            self.go_on()
        # What is left of a body would be taken for another request.
        self._is_last = self._is_last or not request.complete

    def _part(self) -> None:
        """Hang up. A caller that still sends is heard out for a moment, or it would not get to read the answer."""
        if self._reading.stage in (ParserStage.NOTHING, ParserStage.HEAD):
            self._transport.close()
            return
        self._reading.enter(ParserStage.WASTE)
        self._regulate()
        if not self._transport.is_closing():
            self._transport.write_eof()

    async def _let_in(self, request: ProxyRequest) -> None:
        keeper, route = self._house.keeper, request.route
        if keeper is None or isinstance(route, Architect):
            return
        try:
            await keeper.check(route, request.head.authorization, guarded=self._door.guarded)
        except RatchetError as error:
            header = "www-authenticate: Bearer" if error.http_status == 401 else None
            raise Refusal(error.http_status, str(error), hint=error.hint, header=header) from error

    def _admit(self, head: RequestHead) -> AgentRoute | Architect:
        return admit(head, self._door, self._house.token, has_keys=self._house.keeper is not None)

    def _put(self, item: ProxyRequest | Refusal) -> None:
        self._ahead.append(item)
        self._regulate()
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _invite(self) -> None:
        """Tell a caller that waits for it that its body is welcome."""
        if self._reading.is_expectant and self.waits:
            self._reading.is_expectant = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def waits(self) -> bool:
        """Whether nothing that was read waits for an answer."""
        return self._current is None and not self._ahead

    def _is_held(self) -> bool:
        """Whether what has come must be used before more is read."""
        full = self._server_is_slow or len(self._ahead) >= _MOST_AHEAD or self._reading.is_full
        return full and self._reading.stage is not ParserStage.WASTE

    def _regulate(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_held():
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
