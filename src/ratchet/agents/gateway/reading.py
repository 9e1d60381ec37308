"""Cutting what a caller sends into requests, as strictly as possible and with nothing without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

import httptools

from ratchet.agents.gateway.directory import Route
from ratchet.agents.gateway.headers import Header
from ratchet.agents.gateway.limits import Limits
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.request import Request, RequestHead, read_head
from ratchet.agents.gateway.routes import Architect


class Stage(Enum):
    """What is being read."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()
    """Between two requests."""
    WASTE = auto()
    """Nothing counts any more; the caller may still be reading what it was told last."""


class Reading:
    """Hands each request on as soon as it is whole, or too long to be held back.

    What cannot be a request is handed on as a `Refusal`, and after that nothing is.
    """

    def __init__(
        self,
        limits: Limits,
        admit: Callable[[RequestHead], Route | Architect],
        begun: Callable[[], None],
        hand_on: Callable[[Request | Refusal], None],
    ) -> None:
        """`begun` hears of a head that was admitted, before anything of its body."""
        self._limits = limits
        self._admit = admit
        self._begun = begun
        self._hand_on = hand_on
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[Header] = []
        self._target = b""
        self._request: Request | None = None
        # Bytes that came since the last sign of progress: a head, or the trailers of a body, must end some time.
        self._unheard = 0
        # Whether the caller sends its body only when it is told to.
        self.is_expectant = False
        self.enter(Stage.HEAD)

    @property
    def is_full(self) -> bool:
        """Whether a long body waits for somebody to take it."""
        request = self._request
        return request is not None and request.carrier is None and self._is_long(request)

    def enter(self, stage: Stage) -> None:
        self.stage = stage
        self.since = self._loop.time()
        if stage is not Stage.HEAD:
            self._unheard = 0

    def feed(self, data: bytes) -> None:
        if self.stage is Stage.WASTE:
            return
        self._unheard += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(_upgrade())
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, Refusal):
                raise
            self.refuse(cause or Refusal(400, f"this is not HTTP/1.1: {error}"))
        if self._unheard > self._limits.head_bytes:
            self.refuse(self._too_long())

    def refuse(self, refusal: Refusal) -> None:
        """Read no further. A request that is being answered already hears it, any other is answered with it."""
        if self.stage is Stage.WASTE:
            return
        request, self._request = self._request, None
        self.enter(Stage.WASTE)
        if request is not None and self._is_long(request):
            request.fail(refusal)
        else:
            self._hand_on(refusal)

    def refuse_late(self, now: float, *, is_held: bool) -> None:
        """Give up on a caller that takes too long; one that is not read from is not to blame."""
        limits, waited = self._limits, now - self.since
        if self.stage is Stage.HEAD and waited > limits.head_seconds:
            self.refuse(
                Refusal(408, f"the head of the request did not come within {limits.head_seconds:g} s")
            )
        elif self.stage is Stage.BODY and not is_held and waited > limits.body_seconds:
            self.refuse(Refusal(408, f"the body of the request did not go on for {limits.body_seconds:g} s"))

    def on_message_begin(self) -> None:
        self._headers = []
        self._target = b""
        self.enter(Stage.HEAD)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage is not Stage.HEAD:
            return  # a trailer, which nobody waits for
        self._headers.append((name.lower(), value))
        if len(self._headers) > self._limits.headers:
            raise self._too_long()

    def on_headers_complete(self) -> None:
        parser, limits = self._parser, self._limits
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > limits.head_bytes:
            raise self._too_long()
        if parser.should_upgrade():
            raise _upgrade()
        head = read_head(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._headers,
            persistent=parser.should_keep_alive(),
        )
        route = self._admit(head)
        if head.length is not None and head.length > limits.body_bytes:
            raise self._too_large()
        self._request = Request(head, route)
        self.is_expectant = head.expects and head.has_body
        self.enter(Stage.BODY)
        self._begun()

    def on_body(self, body: bytes) -> None:
        request = self._request
        assert request is not None
        if request.size + len(body) > self._limits.body_bytes:
            raise self._too_large()
        was_long = self._is_long(request)
        request.add(body)
        self.is_expectant = False
        self.enter(Stage.BODY)
        if self._is_long(request) and not was_long:
            self._hand_on(request)

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        assert request is not None
        self.is_expectant = False
        self.enter(Stage.NOTHING)
        request.end()
        if not self._is_long(request):
            self._hand_on(request)

    def _is_long(self, request: Request) -> bool:
        return request.size >= self._limits.held_bytes

    def _too_long(self) -> Refusal:
        limits = self._limits
        return Refusal(
            431, f"the head of a request may have {limits.head_bytes:,} bytes and {limits.headers} headers"
        )

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body of a request may have {self._limits.body_bytes:,} bytes")


def _upgrade() -> Refusal:
    return Refusal(501, "only HTTP/1.1 is spoken here", hint="leave out Upgrade, and do not use CONNECT")
