"""Who answers at an address: the one question that the gateway asks its host."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ratchet.agents.contract import Role
from ratchet.kernel import RatchetError


class Route(NamedTuple):
    """What an address names. Without a version it is the stable address, which leads to the current one."""

    agent: str
    role: Role
    version: str | None


class Entered(Protocol):
    """A server that a call has entered, and that must not be stopped until the call leaves it.

    The gateway calls `leave` exactly once, at the end of the exchange, however that ends. A session that is opened here
    belongs to this server: whoever names it later must be led back to it.
    """

    @property
    def port(self) -> int: ...

    def leave(self) -> None: ...

    def session_opened(self, session: str) -> None: ...

    def session_closed(self, session: str) -> None: ...


class Directory(Protocol):
    """Leads calls to servers."""

    async def enter(self, route: Route, session: str | None) -> Entered:
        """The server for a call; may wait until one is up, and is cancelled when the caller goes away.

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
