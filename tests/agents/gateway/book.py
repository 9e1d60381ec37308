"""A directory that a test fills by hand, and that counts who is inside."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ratchet.agents.gateway import AgentRoute, SessionOver
from ratchet.kernel import NotFound, RatchetError


@dataclass
class Book:
    """`ports` names the server of each route; sessions stay where they began."""

    ports: dict[AgentRoute, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    inside: Counter[int] = field(default_factory=Counter)
    entries: list[tuple[AgentRoute, str | None]] = field(default_factory=list)
    # Set to keep callers waiting.
    opening: asyncio.Event | None = None
    trouble: RatchetError | None = None

    async def enter(self, route: AgentRoute, session: str | None) -> Visit:
        self.entries.append((route, session))
        if self.opening is not None:
            await self.opening.wait()
        if self.trouble is not None:
            raise self.trouble
        if session is not None and session in self.over:
            raise SessionOver(f"session {session} is over", hint="begin a new one")
        if session is not None and session in self.sessions:
            return self._visit(self.sessions[session])
        if route not in self.ports:
            raise NotFound("agent", route.agent)
        return self._visit(self.ports[route])

    def _visit(self, port: int) -> Visit:
        self.inside[port] += 1
        return Visit(self, port)


@dataclass
class Visit:
    book: Book
    port: int
    has_left: bool = False

    def leave(self) -> None:
        assert not self.has_left, "left twice"
        self.has_left = True
        self.book.inside[self.port] -= 1

    def session_opened(self, session: str) -> None:
        self.book.sessions[session] = self.port

    def session_closed(self, session: str) -> None:
        self.book.over.add(session)
        del self.book.sessions[session]
