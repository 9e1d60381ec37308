"""What every endpoint works with."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from ratchet.config import Loaded
from ratchet.ledger import Ledger, Transaction
from ratchet.runtime import Runtime

ACTOR = "api"


@dataclass(frozen=True, slots=True)
class Service:
    """The runtime behind the API. `process_id` is the worker of this process, if it has one."""

    runtime: Runtime
    loaded: Loaded
    process_id: str | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Become unready and end the event streams; other requests are still answered."""
        self.stopping.set()
        self.runtime.ledger.bell.ring()


@dataclass(frozen=True, slots=True)
class Access:
    """The service in the name of one request."""

    service: Service
    request_id: str

    @property
    def runtime(self) -> Runtime:
        return self.service.runtime

    @property
    def ledger(self) -> Ledger:
        return self.service.runtime.ledger

    def read(self) -> AbstractContextManager[Transaction]:
        return self.ledger.read()

    def write(self) -> AbstractContextManager[Transaction]:
        return self.ledger.write(actor=ACTOR, request_id=self.request_id)


async def _access(request: Request) -> Access:
    return Access(request.app.state.service, request.state.request_id)


# Endpoints that use it are plain functions: they run in a thread, where the database may be waited for.
Api = Annotated[Access, Depends(_access)]
