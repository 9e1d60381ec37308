"""A directory that a test fills by hand, and that counts who is inside."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ratchet.agents.gateway import AgentRoute, SessionOver
from ratchet.agents.gateway.request import ProxyRequest
from ratchet.kernel import NotFound, RatchetError


@dataclass
class Book:
    """`ports` names the server of each route; a session belongs to the one that opened it."""

    ports: dict[AgentRoute, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    inside: Counter[int] = field(default_factory=Counter)
    entries: list[tuple[AgentRoute, str | None]] = field(default_factory=list)
    # Set to keep callers waiting.
    opening: asyncio.Event | None = None
    trouble: RatchetError | None = None

    async def enter(self, route: AgentRoute, session: str | None, _request: ProxyRequest | None) -> Visit:
        self.entries.append((route, session))
        if self.opening is not None:
            await self.opening.wait()
        if self.trouble is not None:
            raise self.trouble
        if session is not None and session in self.over:
            raise SessionOver(f"session {session} is over", hint="begin a new one")
        if session is not None and session in self.sessions:
            return self._visit(route, self.sessions[session])
        if route not in self.ports:
            raise NotFound("agent", route.agent)
        return self._visit(route, self.ports[route])

    def _visit(self, route: AgentRoute, port: int) -> Visit:
        self.inside[port] += 1
        return Visit(self, route, port)


@dataclass
class Visit:
    book: Book
    route: AgentRoute
    port: int
    has_left: bool = False
    broken: int = 0

    @property
    def commit(self) -> str:
        return f"{self.port:040}"

    @property
    def is_left(self) -> bool:
        return self.book.ports.get(self.route) != self.port

    @property
    def lists(self) -> dict[str, str]:
        """Each server has tools of its own, and the prompts of all others."""
        return {"tools": str(self.port), "prompts": "the same"}

    def broke_off(self) -> None:
        self.broken += 1

    def leave(self) -> None:
        assert not self.has_left, "left twice"
        self.has_left = True
        self.book.inside[self.port] -= 1

    def session_opened(self, session: str) -> None:
        self.book.sessions[session] = self.port

    def session_closed(self, session: str) -> None:
        self.book.over.add(session)
        del self.book.sessions[session]
