"""The host: keeps the servers of agents running, and tells the gateway which of them answers a call."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ratchet.agents.access import KeyKeeper, allowed_by, secrets_of
from ratchet.agents.addresses import (
    AgentTokens,
    Reached,
    agents_here,
    announce,
    announced,
    host_lock,
)
from ratchet.agents.call_record import CallRecorder
from ratchet.agents.contract import place_of
from ratchet.agents.gateway import AgentRoute, Gateway, GatewayLimits, Unavailable
from ratchet.agents.gateway.request import ProxyRequest
from ratchet.agents.host.address import HostedAddress, HostSurroundings
from ratchet.agents.host.records import HostedAgent, Records
from ratchet.agents.host.supervisor import Tasks, persistently
from ratchet.agents.host.version import EnteredCall
from ratchet.agents.servers import Launch
from ratchet.agents.servers.environment import warm_up
from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.kernel import LedgerUnavailable, RatchetError
from ratchet.ledger import Event, EventFilter, follow_async
from ratchet.ledger import events as event_log
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime
from ratchet.runtime.addresses import ServerAddress

# What may change which version an address leads to, or whether one may be started.
_NEWS = frozenset(
    f"agent.{kind}"
    for kind in (
        "ready", "promoted", "rolled_back", "fell_back", "released", "quarantined", "deleted", "traffic",
    )
)  # fmt: skip
# At the start the agents that were changed last are brought up, a few at a time; the others when they are called.
_RESTORED = 32
_AT_ONCE = 2
_LONGEST_SWEEP_SECONDS = 5.0


class LastSecrets:
    """The secrets of an agent, and while the ledger is away those that its servers were started with before."""

    def __init__(self, read: Callable[[], Mapping[str, str]]) -> None:
        self._read = read
        self._last: Mapping[str, str] | None = None

    def __call__(self) -> Mapping[str, str]:
        try:
            self._last = self._read()
        except LedgerUnavailable:
            if self._last is None:
                raise
        return self._last


@dataclass(frozen=True, slots=True)
class HostAccess:
    """How the servers that a host starts reach Ratchet: at `url`, with tokens of their own."""

    url: str
    tokens: AgentTokens
    runtime: Runtime

    def launch(self, agent: str, commit: str, directory: Path) -> Launch:
        port = urlsplit(self.url).port
        assert port is not None
        token = {"RATCHET_AGENT_TOKEN": self.tokens.mint(agent, commit)}
        return Launch(
            agent,
            commit,
            directory,
            port,
            token,
            allowed=partial(allowed_by, self.runtime.ledger, agent),
            secrets=LastSecrets(partial(secrets_of, self.runtime, agent)),
        )


class Host:
    """The `Directory` of the gateway. `url` is where the agents of this home answer, here or in another process.

    A host that is not `lasting` serves one command: it starts what is called and nothing else.
    """

    def __init__(self, runtime: Runtime, *, lasting: bool = True) -> None:
        self.url: str | None = None
        self.urls: list[str] = []
        self.is_active = False
        self.moved: Callable[[str], None] = lambda _name: None
        """Is told the name of each agent whose address has moved."""
        self._runtime = runtime
        self._lasting = lasting
        self._records = Records(runtime.ledger)
        self._addresses: dict[str, HostedAddress] = {}
        self._surroundings: HostSurroundings | None = None

    async def enter(
        self, route: AgentRoute, session: str | None, request: ProxyRequest | None
    ) -> EnteredCall:
        address = self._addresses.get(route.agent)
        if address is None:
            address = self._open(await self._records.look(route.agent))
        return await address.enter(route.role, route.version, session, request)

    def status(self) -> dict[str, Any]:
        """What runs here now, in plain values."""
        agents = [self._addresses[name].status() for name in sorted(self._addresses)]
        return {"url": self.url, "active": self.is_active, "agents": agents}

    async def run(self, access: HostAccess, ready: asyncio.Event) -> None:
        """Serve until cancelled; then everything that was started has ended. `ready` is set when calls can be led."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = Tasks(group)
                self._surroundings = HostSurroundings(
                    self._runtime.settings.agents, self._records, tasks, access.launch, self.moved
                )
                tasks.keep_doing(self._records.write_events)
                tasks.keep_doing(self._sweep)
                self.is_active = True
                ready.set()
                await persistently(self._follow)
        finally:
            self.is_active = False
            self._surroundings = None
            self._addresses.clear()
            await self._records.write_last()

    async def _follow(self) -> None:
        """Take over what there is, and then everything that the ledger tells."""
        if self._lasting:
            rows, seen = await self._records.everything()
            found = [self._open(row) for row in rows if self._is_here(row)]
            self._tasks.start(partial(self._restore, found[:_RESTORED]))
        else:
            seen = await asyncio.to_thread(self._last_event)
        news = follow_async(self._runtime.ledger, seen, where=EventFilter(type="agent.*"))
        async with contextlib.aclosing(news):
            async for event in news:
                if event.type in _NEWS:
                    await self._hear(event)

    async def _hear(self, event: Event) -> None:
        name = event.data.get("agent") if isinstance(event.data, dict) else None
        if not isinstance(name, str):
            return
        if name in self._addresses:
            self._addresses[name].look_again()
        elif self._lasting:
            await self._open_if_here(name)

    async def _open_if_here(self, name: str) -> None:
        row = await self._records.row(name)
        if row is not None and self._is_here(row) and name not in self._addresses:
            self._tasks.start(self._open(row).bring_up)

    async def _restore(self, addresses: list[HostedAddress]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def restore(address: HostedAddress) -> None:
            async with gate:
                await address.bring_up()

        await asyncio.gather(*(restore(address) for address in addresses))

    def _open(self, row: HostedAgent) -> HostedAddress:
        """The address of an agent. Raises `Unavailable` for one that cannot be served here."""
        known = self._addresses.get(row.agent.name)
        if known is not None:
            return known
        if self._surroundings is None:
            raise Unavailable("agents are not served at this moment", hint="try it again")
        if not self._is_here(row):
            raise Unavailable(
                f"the agent {row.agent.name} does not lie in {self._runtime.home}",
                hint="call it where it was created: another home shares this ledger",
            )
        address = HostedAddress(row, place_of(self._runtime.home, row.agent.name), self._surroundings)
        self._addresses[row.agent.name] = address
        self._tasks.start(partial(self._tend, address))
        return address

    async def _tend(self, address: HostedAddress) -> None:
        await persistently(address.tend)
        if self._addresses.get(address.name) is address:
            del self._addresses[address.name]
        if self._lasting:
            # Another agent may have been given its name.
            await self._open_if_here(address.name)

    async def _sweep(self) -> None:
        settings = self._runtime.settings.agents
        shortest = min(settings.idle_seconds, settings.session_idle_seconds) / 4
        while True:
            await asyncio.sleep(min(shortest, _LONGEST_SWEEP_SECONDS))
            for address in list(self._addresses.values()):
                address.sweep()

    def _is_here(self, row: HostedAgent) -> bool:
        return place_of(self._runtime.home, row.agent.name).root.is_dir()

    def _last_event(self) -> int:
        with self._runtime.ledger.read() as tx:
            return event_log.last_id(tx.connection)

    @property
    def _tasks(self) -> Tasks:
        assert self._surroundings is not None
        return self._surroundings.tasks


_log = logger(__name__)
_LOOPBACK = "127.0.0.1"
_Place = tuple[str, tuple[int, ...]]
# How long calls may continue when the host ends.
_GRACE_SECONDS = 3.0
_TAKE_OVER_SECONDS = 0.5


@asynccontextmanager
async def hosting(
    runtime: Runtime,
    loaded: Loaded,
    *,
    api_token: str | None = None,
    any_port: bool = False,
    port_before: int | None = None,
) -> AsyncIterator[Host]:
    """Serve the agents of this home for the block, or stand by while another process does, and take over when it ends.

    Who brings `api_token` may use all that the Architect can. With `any_port` a port that is taken gives way to a
    free one, also if it is configured; `port_before`, that of a host whose place this one takes, comes first. Raises
    `Conflict` if a port that was asked for is taken, and `Misuse`.
    """
    places = _places(loaded, any_port, port_before)
    host = Host(runtime)
    with host_lock(loaded.home) as is_ours:
        if is_ours:
            async with _serving(host, runtime, loaded, api_token, places):
                yield host
            return
    host.url = announced(loaded.home)
    _log.info("another process serves the agents of this home; standing by", url=host.url)
    standing_by = asyncio.create_task(_take_over(host, runtime, loaded, api_token, places))
    try:
        yield host
    finally:
        standing_by.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await standing_by


@asynccontextmanager
async def hosting_alone(runtime: Runtime, loaded: Loaded) -> AsyncIterator[Reached]:
    """Serve the agents of this home to this process for the block, and say where, and by which token."""
    host = Host(runtime, lasting=False)
    token = secrets.token_urlsafe()
    async with _open(host, runtime, loaded, [(_LOOPBACK, (0,))], token) as url:
        yield Reached(url, token)


async def _take_over(
    host: Host, runtime: Runtime, loaded: Loaded, api_token: str | None, places: list[_Place]
) -> None:
    while True:
        await asyncio.sleep(_TAKE_OVER_SECONDS)
        with host_lock(loaded.home) as is_ours:
            host.url = announced(loaded.home)
            if not is_ours:
                continue
            try:
                async with _serving(host, runtime, loaded, api_token, places):
                    _log.info("the other process has ended; serving its agents now", url=host.url)
                    await asyncio.Event().wait()
            except RatchetError as error:
                _log.warning("cannot serve agents now, trying again", error=str(error))


def _places(loaded: Loaded, any_port: bool, port_before: int | None) -> list[_Place]:
    """Where to listen, each with the ports to try; the first is that of agents and commands of this machine."""
    settings = loaded.settings.agents
    places: list[_Place] = [
        (settings.host, (*ports_to_try(loaded, "agents.port"), *((0,) if any_port else ())))
    ]
    if settings.host != _LOOPBACK:
        # Other machines need a token; agents and commands of this machine have an address of their own.
        places.insert(0, (_LOOPBACK, (0,)))
    if port_before is not None:
        address, ports = places[0]
        places[0] = (address, (port_before, *ports))
    return places


@asynccontextmanager
async def _serving(
    host: Host, runtime: Runtime, loaded: Loaded, api_token: str | None, places: list[_Place]
) -> AsyncIterator[None]:
    """Be the host of the home, which is ours."""
    async with _open(host, runtime, loaded, places, api_token) as url, _reported(host, runtime, loaded):
        announce(loaded.home, url)
        _log.info("serving agents", url=url)
        await asyncio.to_thread(warm_up)
        yield


@asynccontextmanager
async def _reported(host: Host, runtime: Runtime, loaded: Loaded) -> AsyncIterator[None]:
    """Have the row of this process say which agents lie here and where other machines call them, for the block."""
    port = urlsplit(host.urls[-1]).port
    assert port is not None
    place = ServerAddress(loaded.settings.agents.host, port)
    url = place.url_for_others(loaded.settings.database_url.host)
    runtime.reports |= {"agents_url": lambda: url, "agents": lambda: agents_here(loaded.home)}
    try:
        yield
    finally:
        runtime.reports |= {"agents_url": lambda: None, "agents": tuple}


@asynccontextmanager
async def _open(
    host: Host,
    runtime: Runtime,
    loaded: Loaded,
    places: list[_Place],
    api_token: str | None,
) -> AsyncIterator[str]:
    """Lead calls that arrive at `places` to agents; the URL of the first. At the end nothing is left running."""
    # Only now: a command that finds a running host needs none of it, and importing it takes long.
    from ratchet.agents.architect_server import architect_listening

    tokens = AgentTokens()
    chosen = loaded.settings.server.token
    # Without an API token, no person can call the Architect.
    async with architect_listening(
        runtime, loaded, tokens, api_token=api_token or secrets.token_urlsafe()
    ) as port:
        recorder = CallRecorder(runtime.ledger, loaded.settings.agents, runtime.jobs)
        gateway = Gateway(
            host,
            architect_port=lambda: port,
            token=None if chosen is None else chosen.get_secret_value(),
            limits=GatewayLimits(session_seconds=loaded.settings.agents.session_idle_seconds),
            recorder=recorder,
            keeper=KeyKeeper(runtime.ledger, api_token),
        )
        host.moved = gateway.follow
        try:
            host.urls = [await gateway.listen(address, *ports) for address, ports in places]
            host.url = host.urls[0]
            async with recorder.writing(), _running(host, HostAccess(host.url, tokens, runtime)):
                try:
                    yield host.url
                finally:
                    await gateway.close(_GRACE_SECONDS)
        finally:
            await gateway.close(0)


@asynccontextmanager
async def _running(host: Host, access: HostAccess) -> AsyncIterator[None]:
    ready = asyncio.Event()
    running = asyncio.create_task(host.run(access, ready))
    try:
        await ready.wait()
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
