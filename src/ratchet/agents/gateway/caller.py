"""A caller's connection: has its requests answered, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from ratchet.agents.gateway.admission import Door, admit
from ratchet.agents.gateway.directory import Route
from ratchet.agents.gateway.forwarding import BrokenOff, Forwarding
from ratchet.agents.gateway.limits import Limits
from ratchet.agents.gateway.reading import Reading, Stage
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.request import Request, RequestHead
from ratchet.agents.gateway.routes import Architect
from ratchet.observe.logs import logger

_log = logger(__name__)
# Requests that a caller may send ahead before it is no longer read from.
_MOST_AHEAD = 16


class House(Protocol):
    """What all callers share."""

    limits: Limits
    forwarding: Forwarding
    token: bytes | None

    def welcome(self, caller: Caller, address: str, port: int) -> Door | None:
        """The door at that address, which a caller has come through; `None` when the house is full."""
        ...

    def say_goodbye(self, caller: Caller) -> None: ...


class Caller(asyncio.Protocol):
    def __init__(self, house: House) -> None:
        self._house = house
        self._limits = house.limits
        self._loop = asyncio.get_running_loop()
        self._reading = Reading(house.limits, self._admit, self._invite, self._put)
        self._transport: asyncio.Transport
        self._door: Door
        self.serving: asyncio.Task[None] | None = None
        # What was read and is not answered yet; a refusal is the last of a connection.
        self._ahead: deque[Request | Refusal] = deque()
        self._more: asyncio.Future[None] | None = None
        self._current: Request | None = None
        self._is_last = False
        self._server_is_slow = False
        self._idle_since = self._loop.time()
        # While more was said than the caller has read.
        self._unread_since: float | None = None
        self._was_read: asyncio.Future[None] | None = None

    def finish(self) -> None:
        """Serve what is under way, then hang up."""
        self._is_last = True
        # A GET waits for news, and has nothing to finish.
        if self._is_free() or (self._current is not None and self._current.head.method == b"GET"):
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def look(self, now: float) -> None:
        """Part from a caller that takes too long."""
        limits, stage = self._limits, self._reading.stage
        if stage is Stage.WASTE:
            if self._is_free() and now - self._reading.since > limits.linger_seconds:
                self._transport.abort()
        elif self._unread_since is not None and now - self._unread_since > limits.stalled_seconds:
            self._transport.abort()
        elif stage is not Stage.NOTHING:
            self._reading.refuse_late(now, is_held=self._is_held())
        elif self._is_free() and now - self._idle_since > limits.idle_seconds:
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

    async def _next(self) -> Request | Refusal:
        if not self._ahead:
            self._idle_since = self._loop.time()
            self._more = self._loop.create_future()
            await self._more
        item = self._ahead.popleft()
        self._regulate()
        return item

    async def _answer(self, request: Request) -> None:
        self._current = request
        self._is_last = self._is_last or not request.head.persistent
        try:
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
        if self._reading.stage in (Stage.NOTHING, Stage.HEAD):
            self._transport.close()
            return
        self._reading.enter(Stage.WASTE)
        self._regulate()
        if not self._transport.is_closing():
            self._transport.write_eof()

    def _admit(self, head: RequestHead) -> Route | Architect:
        return admit(head, self._door, self._house.token)

    def _put(self, item: Request | Refusal) -> None:
        self._ahead.append(item)
        self._regulate()
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _invite(self) -> None:
        """Tell a caller that waits for it that its body is welcome."""
        if self._reading.is_expectant and self._is_free():
            self._reading.is_expectant = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _is_free(self) -> bool:
        """Whether nothing that was read waits for an answer."""
        return self._current is None and not self._ahead

    def _is_held(self) -> bool:
        """Whether what has come must be used before more is read."""
        full = self._server_is_slow or len(self._ahead) >= _MOST_AHEAD or self._reading.is_full
        return full and self._reading.stage is not Stage.WASTE

    def _regulate(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_held():
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
