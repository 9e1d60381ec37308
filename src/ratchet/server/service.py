"""What every endpoint works with."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import resource
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from ratchet.agents.access import KeyScope
from ratchet.config import Loaded, Settings
from ratchet.kernel import RatchetError
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.projects import Owner, project_of_token, tokens_of
from ratchet.runtime import Runtime

if TYPE_CHECKING:
    from ratchet.agents.access import KeyHolder
    from ratchet.agents.host import Host


HEADER = "X-Project-Token"


class ProjectTokenNeeded(RatchetError):
    """The project has a token of its own, and it was not shown."""

    http_status = 401


class Forbidden(RatchetError):
    """The token that was shown does not open this."""

    http_status = 403


@dataclass(frozen=True, slots=True)
class Caller:
    """The operator, who holds the server's token, or somebody who holds only the token of one project or the `key` of
    one agent.

    `shown` is the hash of the project's token that the operator sends along. `opened` are those that somebody has shown
    before, one after the other: they open their projects and close no other.
    """

    project_id: int | None = None
    key: KeyHolder | None = None
    shown: str | None = None
    opened: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        return self.project_id is None and self.key is None

    @property
    def name(self) -> str:
        """Who this is, in words."""
        if self.key is not None:
            return f"keys of agent {self.key.agent}"
        return "the operator" if self.project_id is None else f"project {self.project_id}"

    @property
    def tokens(self) -> frozenset[str]:
        """The hashes of all tokens of projects that this one has shown."""
        return self.opened if self.shown is None else self.opened | {self.shown}

    def enter(self, tx: Transaction, owner: Owner) -> None:
        """Pass if this is one that the caller may use. Raises `Forbidden` or `ProjectTokenNeeded`."""
        if self.project_id is not None:
            if self.project_id != owner.project_id:
                raise Forbidden(
                    f"this belongs to another than project {self.project_id}",
                    hint="ask with the server's token",
                )
            return
        if owner.token_hash in self.opened:
            return
        if owner.project_id is None or (self.shown is None and owner.token_hash is None):
            return
        if self.shown is not None:
            if owner.token_hash is not None and hmac.compare_digest(self.shown, owner.token_hash):
                return
            if project_of_token(tx, self.shown) is not None:
                raise Forbidden(
                    f"the {HEADER} is that of another project", hint="send that of this project, or none"
                )
        if owner.token_hash is not None:
            raise ProjectTokenNeeded(
                f"project {owner.project_id} has a token of its own, which is missing or wrong",
                hint=f"send it as {HEADER}, or alone as the bearer token",
            )

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        """Those of the projects, or nobody's, whose things must not be in a list that goes over all of them."""
        named = frozenset(project_ids)
        if self.project_id is not None:
            return named - {self.project_id}
        guarded = tokens_of(tx, [number for number in named if number is not None])
        return frozenset(number for number, token in guarded.items() if token not in self.tokens)


# Of requests that need no token: no project has this number.
NOBODY = Caller(project_id=0)

_MOST_CONNECTIONS = 4096
_MOST_OF_ONE = 256


def most_connections() -> int:
    """So many that work, the database and agents still find descriptors when all of them are open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft // 2, _MOST_CONNECTIONS) if soft != resource.RLIM_INFINITY else _MOST_CONNECTIONS


def _share() -> int:
    """Streams that one caller may have who is not the operator; of all its requests it is twice as many."""
    return min(most_connections() // 16, _MOST_OF_ONE)


class TooManyOpen(RatchetError):
    """This caller has as many requests open as one may have."""

    http_status = 429


class OpenRequests:
    """How many requests are being answered for whom, so that no caller takes all connections.

    The operator may have half of them for streams, and is else without a bound. All others together have a quarter,
    and one of them an eighth. So a quarter is left for what lasts a moment.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: Caller) -> Iterator[None]:
        """A request of one who brought a token. Raises `TooManyOpen`."""
        if caller.is_operator:
            yield
            return
        with (
            self._bounded("requests of all but the operator", most_connections() // 4),
            self._bounded(f"requests of {caller.name}", 2 * _share()),
        ):
            yield

    def stream(self, caller: Caller) -> AbstractContextManager[None]:
        """What stays open until the caller leaves. Raises `TooManyOpen`."""
        most = most_connections() // 2 if caller.is_operator else _share()
        return self._bounded(f"streams of {caller.name}", most)

    @contextmanager
    def _bounded(self, what: str, most: int) -> Iterator[None]:
        if self._open[what] >= most:
            raise TooManyOpen(
                f"{most} {what} are open already, and no more are answered at a time",
                hint="close some, or wait until they have ended",
            )
        self._open[what] += 1
        try:
            yield
        finally:
            self._open[what] -= 1
            if not self._open[what]:
                del self._open[what]


def hash_of(token: bytes) -> str:
    """What is kept of a project's token."""
    return hashlib.sha256(token).hexdigest()


@dataclass(slots=True)
class Service:
    """The runtime behind the API. `process_id` is this process in the ledger, and `host` serves agents, if it has them.

    The host comes later than the rest: it needs the event loop. `kept` is what calls leave for the next ones.
    """

    runtime: Runtime
    loaded: Loaded
    process_id: str | None = None
    host: Host | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open_requests: OpenRequests = field(default_factory=OpenRequests)

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
        if self.caller.key is not None:
            return f"{self.face} of agent {self.caller.key.agent}"
        return self.face if self.caller.is_operator else f"{self.face} of {self.caller.name}"

    @property
    def runtime(self) -> Runtime:
        return self.service.runtime

    @property
    def ledger(self) -> Ledger:
        return self.service.runtime.ledger

    @property
    def loaded(self) -> Loaded:
        return self.service.loaded

    @property
    def home(self) -> Path:
        return self.service.runtime.home

    @property
    def settings(self) -> Settings:
        return self.service.runtime.settings

    @property
    def kept(self) -> dict[str, Any]:
        return self.service.kept

    @property
    def person(self) -> str:
        return self.actor

    @property
    def is_budgeted(self) -> bool:
        key = self.caller.key
        return key is not None and not key.may(key.agent, KeyScope.ADMIN)

    @property
    def project_id(self) -> int | None:
        return self.caller.project_id

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        return self.caller.hidden(tx, project_ids)

    def read(self) -> AbstractContextManager[Transaction]:
        return self.ledger.read()

    def write(self) -> AbstractContextManager[Transaction]:
        return self.ledger.write(actor=self.actor, request_id=self.request_id)

    def serving(self, agent: str) -> list[Any] | None:
        # The host lives in the event loop: ask it there, and not in a thread.
        host = self.service.host
        if host is None or not host.is_active:
            return None
        return [
            version
            for each in host.status()["agents"]
            if each["agent"] == agent
            for version in each["versions"]
        ]


async def _access(request: Request) -> Access:
    state = request.app.state
    return Access(state.service, request.state.request_id, request.state.caller, state.face)


# Endpoints that use it are plain functions: they run in a thread, where the database may be waited for.
Api = Annotated[Access, Depends(_access)]
