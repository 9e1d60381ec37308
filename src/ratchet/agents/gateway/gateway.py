"""The gateway: listens, and lets each connection serve its caller."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import math
import resource
from collections.abc import Callable, Iterable

from ratchet.agents.call_record import CallRecorder
from ratchet.agents.gateway.backend import Pool
from ratchet.agents.gateway.caller import (
    CallerConnection,
    Forwarding,
    Gatekeeper,
    ListenAddress,
    door_at,
    is_loopback,
)
from ratchet.agents.gateway.routes import Directory, GatewayLimits
from ratchet.agents.gateway.sessions import ClientSessions
from ratchet.kernel import Conflict, Misuse, RatchetError


class Gateway:
    """The stable addresses of agents, and the Architect's, under one URL.

    It may listen at several places. Where other machines can reach it, it wants the token on the addresses of agents.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        architect_port: Callable[[], int | None],
        token: str | None = None,
        hosts: Iterable[str] = (),
        limits: GatewayLimits | None = None,
        recorder: CallRecorder | None = None,
        keeper: Gatekeeper | None = None,
    ) -> None:
        """`hosts` are names, with or without a port, that callers may use besides the address itself."""
        self.limits = limits or GatewayLimits()
        self.token = token.encode() if token else None
        self.keeper = keeper
        self._pool = Pool(self.limits)
        self._sessions = ClientSessions(directory, self.limits.session_seconds)
        self.forwarding = Forwarding(self._pool, architect_port, self._sessions, recorder)
        self._names = tuple(hosts)
        # Ports that other machines can reach.
        self._guarded: set[int] = set()
        self._servers: list[asyncio.Server] = []
        self._urls: list[str] = []
        self._callers: set[CallerConnection] = set()
        self._looking: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def url(self) -> str:
        """Where it listened first."""
        return self._urls[0]

    async def listen(self, host: str, *ports: int) -> str:
        """Serve at `host` and the first of `ports` that is free (0 takes any); the URL.

        Raises `Misuse` and `Conflict`.
        """
        for port in ports[:-1]:
            with contextlib.suppress(Conflict):
                return await self._listen(host, port)
        return await self._listen(host, ports[-1])

    async def _listen(self, host: str, port: int) -> str:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._receive, host, port, start_serving=False)
        except (OSError, UnicodeError, OverflowError) as error:
            raise _explained(error, host, port) from error
        addresses = [each.getsockname()[:2] for each in server.sockets]
        if not all(is_loopback(address) for address, _ in addresses):
            if self.token is None:
                server.close()
                raise Misuse(
                    f"other machines can reach {host}, and agents would answer them without a token",
                    hint="set server.token in ratchet.toml (or RATCHET_SERVER__TOKEN) to a long random text,"
                    " or set agents.host to 127.0.0.1",
                )
            self._guarded.update(port for _, port in addresses)
        try:
            await server.start_serving()
        except OSError as error:  # another program listened in between
            server.close()
            raise _explained(error, host, port) from error
        self._servers.append(server)
        self._urls.append(_url(*addresses[0]))
        if self._looking is None:
            self._looking = loop.create_task(self._look())
        return self._urls[-1]

    def follow(self, agent: str) -> None:
        """The address of an agent leads to another version now: lead the sessions of its clients there."""
        self._sessions.follow(agent)

    async def close(self, grace_seconds: float) -> None:
        """Take no more callers, let those who wait for an answer get it for so long, and hang up."""
        self._is_closing = True
        for server in self._servers:
            server.close()
        for caller in list(self._callers):
            caller.finish()
        serving = [caller.serving for caller in self._callers if caller.serving is not None]
        if serving:
            await asyncio.wait(serving, timeout=grace_seconds)
        for caller in list(self._callers):
            caller.abort()
        self._pool.close()
        await self._sessions.close()
        if self._looking is not None:
            self._looking.cancel()
            serving.append(self._looking)
        await asyncio.gather(*serving, return_exceptions=True)

    def welcome(self, caller: CallerConnection, address: str, port: int) -> ListenAddress | None:
        if self._is_closing or not self._has_room():
            return None
        self._callers.add(caller)
        return door_at(address, port, guarded=port in self._guarded, names=self._names)

    def say_goodbye(self, caller: CallerConnection) -> None:
        self._callers.discard(caller)

    def _has_room(self) -> bool:
        """The caller that has asked nothing for longest makes room: however many only keep connections open, one that
        asks is answered."""
        if len(self._callers) < min(self.limits.connections, _descriptors_for_callers()):
            return True
        waiting = [each for each in self._callers if each.waits]
        if waiting:
            oldest = min(waiting, key=lambda each: each.waits_since)
            self._callers.discard(oldest)
            oldest.abort()
        return bool(waiting)

    def _receive(self) -> CallerConnection:
        return CallerConnection(self)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.limits.look_seconds)
            now = loop.time()
            self._pool.look(now)
            self._sessions.look(now)
            for caller in list(self._callers):
                caller.look(now)


def _descriptors_for_callers() -> float:
    """A call takes one for its caller and one for its server; the API in this process may have half of all."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // 8 if soft != resource.RLIM_INFINITY else math.inf


def _url(address: str, port: int) -> str:
    """How this machine reaches an address; one that stands for all of them is none to call."""
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        address = "::1" if ":" in address else "127.0.0.1"
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _explained(error: Exception, host: str, port: int) -> RatchetError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return Conflict(
            f"port {port} of {host} is taken",
            hint="stop the program that has it, or have agents served at a free port with"
            " `RATCHET_AGENTS__PORT=0 ratchet serve`",
        )
    return Misuse(
        f"agents cannot be served at {host}:{port}: {error}", hint="set agents.host and agents.port"
    )
