"""What every endpoint works with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from ratchet.config import Loaded, Settings
from ratchet.ledger import Ledger, Transaction
from ratchet.runtime import Runtime
from ratchet.server.caller import Caller

if TYPE_CHECKING:
    from ratchet.agents.host import Host
    from ratchet.tools.registry import Toolbox


@dataclass(slots=True)
class Service:
    """The runtime behind the API. `process_id` is the worker of this process, and `host` serves agents, if it has them.

    The host comes later than the rest: it needs the event loop. `toolbox` is the one that was opened last.
    """

    runtime: Runtime
    loaded: Loaded
    process_id: str | None = None
    host: Host | None = None
    toolbox: Toolbox | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Become unready and end the event streams; other requests are still answered."""
        self.stopping.set()
        self.runtime.ledger.bell.ring()


@dataclass(frozen=True, slots=True)
class Access:
    """The service in the name of one request, which came by one of the server's faces."""

    service: Service
    request_id: str
    caller: Caller
    face: str = "api"

    @property
    def actor(self) -> str:
        """Who did what this request does, for the record."""
        return (
            self.face
            if self.caller.project_id is None
            else f"{self.face} of project {self.caller.project_id}"
        )

    @property
    def runtime(self) -> Runtime:
        return self.service.runtime

    @property
    def ledger(self) -> Ledger:
        return self.service.runtime.ledger

    @property
    def settings(self) -> Settings:
        return self.service.runtime.settings

    @property
    def person(self) -> str:
        return self.actor

    @property
    def project_id(self) -> int | None:
        return self.caller.project_id

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        return self.caller.hidden(tx, project_ids)

    def read(self) -> AbstractContextManager[Transaction]:
        return self.ledger.read()

    def write(self) -> AbstractContextManager[Transaction]:
        return self.ledger.write(actor=self.actor, request_id=self.request_id)


async def _access(request: Request) -> Access:
    state = request.app.state
    return Access(state.service, request.state.request_id, request.state.caller, state.face)


# Endpoints that use it are plain functions: they run in a thread, where the database may be waited for.
Api = Annotated[Access, Depends(_access)]
