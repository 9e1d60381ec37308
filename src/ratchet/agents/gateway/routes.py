"""Which agent a request names, who serves it, how much is accepted, and the answers of the gateway itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ratchet.agents.contract import Role, check_name
from ratchet.kernel import Misuse, RatchetError

if TYPE_CHECKING:
    from ratchet.agents.gateway.request import ProxyRequest

# JSON-RPC's word for a request that is wrong, and the first of those left to servers.
_INVALID_REQUEST = -32600
_SERVER_ERROR = -32000

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Refusal(Exception):
    """A request that no server answers, and what its caller is told instead."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, header: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.header = header

    def encoded(self, *, close: bool, bodiless: bool = False) -> bytes:
        """The whole answer. An MCP client shows the message of such a body to the caller."""
        error: dict[str, object] = {
            "code": _INVALID_REQUEST if self.status < 500 else _SERVER_ERROR,
            "message": self.message,
        }
        if self.hint is not None:
            error["data"] = {"hint": self.hint}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        lines = ["content-type: application/json", f"content-length: {len(body)}"]
        if self.header is not None:
            lines.append(self.header)
        if close:
            lines.append("connection: close")
        head = (
            STATUS_LINES[self.status] + "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"
        )
        return head if bodiless else head + body


class AgentRoute(NamedTuple):
    """What an address names. Without a version it is the stable address, which leads to the current one."""

    agent: str
    role: Role
    version: str | None


class Entered(Protocol):
    """A server that a call has entered, and that must not be stopped until the call leaves it.

    The gateway calls `leave` exactly once, at the end of the exchange, however that ends. A session that is opened here
    belongs to this server: a caller that names it later must reach it again.
    """

    @property
    def port(self) -> int: ...

    @property
    def commit(self) -> str:
        """The version."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether the address that led here leads to another version by now."""
        ...

    @property
    def lists(self) -> Mapping[str, str]:
        """A fingerprint of each list that callers may have read: of tools, resources and prompts."""
        ...

    def broke_off(self) -> None:
        """The server has left the call without an answer; it may have ended by it."""
        ...

    def leave(self) -> None: ...

    def session_opened(self, session: str) -> None: ...

    def session_closed(self, session: str) -> None: ...


class Directory(Protocol):
    """Leads calls to servers."""

    async def enter(self, route: AgentRoute, session: str | None, request: ProxyRequest | None) -> Entered:
        """The server for a call; may wait until one is up, and is cancelled when the caller goes away.

        Without a `request` nothing is to be carried but a hello of the gateway itself.

        Raises `NotFound` for an agent or a version that is not there, `Unavailable` when its server cannot be started,
        and `SessionOver` for a session that no server knows any more.
        """
        ...


class Unavailable(RatchetError):
    """The agent is there, but none of its servers can answer now."""

    http_status = 503


class SessionOver(RatchetError):
    """No server knows this session any more: a client that is told so begins a new one."""

    http_status = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """What one caller, or one server, may send, and how long it may take. What goes beyond is refused."""

    head_bytes: int = 64 * 1024
    headers: int = 128
    body_bytes: int = 16 * 1024 * 1024
    held_bytes: int = 64 * 1024
    """How much of a body is held back until it is whole; a longer one is passed on as it comes."""
    connections: int = 1000
    idle_backends: int = 32
    """Unused connections that are kept to one server."""
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """How long a body may make no progress."""
    idle_seconds: float = 75.0
    """How long a caller's connection is kept without a request."""
    stalled_seconds: float = 300.0
    """How long a caller may leave its answer unread."""
    idle_backend_seconds: float = 4.0
    """Shorter than the 5 s after which most servers hang up, so that a request does not meet a closing connection."""
    connect_seconds: float = 5.0
    session_seconds: float = 3600.0
    """How long a session is kept of which nothing is heard."""
    linger_seconds: float = 2.0
    """How long a caller that was refused may continue to send, so that it still gets to read why."""
    look_seconds: float = 1.0
    """Pause between two looks at who is overdue."""


class Architect:
    """The address of the Architect, which has no versions."""


ARCHITECT: Final = Architect()
ARCHITECT_PATH = "/architect/mcp"
AGENT_PATH = "/mcp"
"""Where the server of an agent answers on its own port."""

# No escapes, dot segments, doubled slashes, queries or absolute targets: two readers could understand them differently.
_AGENT = re.compile(
    r"/agents/([a-z0-9._-]+)(?:@([A-Za-z0-9][A-Za-z0-9.+_-]{0,63}))?/(runner|tuner)/mcp", re.ASCII
)


_LONGEST = 200


def route_of(target: bytes) -> AgentRoute | Architect | None:
    """The address that `target` spells, or `None`."""
    return _route_of(target) if len(target) <= _LONGEST else None


@lru_cache(maxsize=1024)
def _route_of(target: bytes) -> AgentRoute | Architect | None:
    text = target.decode("latin-1")
    if text == ARCHITECT_PATH:
        return ARCHITECT
    spelled = _AGENT.fullmatch(text)
    if spelled is None:
        return None
    name, version, role = spelled.groups()
    try:
        check_name(name)
    except Misuse:
        return None
    return None if version is not None and ".." in version else AgentRoute(name, Role(role), version)


def shown(route: AgentRoute | Architect) -> str:
    """A route as a sentence calls it."""
    if isinstance(route, Architect):
        return "the Architect"
    version = "" if route.version is None else f"@{route.version}"
    return f"the {route.role} of agent {route.agent}{version}"
