"""Being the host of a home for a while."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ratchet.agents.gateway import Gateway
from ratchet.agents.host.host import Access, Host
from ratchet.agents.seat import announce, announced, seat
from ratchet.agents.tokens import Tokens
from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger
from ratchet.runtime import Runtime

_log = logger(__name__)
_LOOPBACK = "127.0.0.1"
# How long calls may go on when the host ends.
_GRACE_SECONDS = 3.0
_TAKE_OVER_SECONDS = 0.5


@asynccontextmanager
async def hosting(runtime: Runtime, loaded: Loaded, *, api_token: str | None = None) -> AsyncIterator[Host]:
    """Serve the agents of this home for the block, or stand by while another process does, and take over when it ends.

    Who brings `api_token` may use all that the Architect can. Raises `Conflict` if a port that was asked for is taken,
    and `Misuse`.
    """
    host = Host(runtime)
    with seat(loaded.home) as is_ours:
        if is_ours:
            async with _serving(host, runtime, loaded, api_token):
                yield host
            return
    host.url = announced(loaded.home)
    _log.info("another process serves the agents of this home; standing by", url=host.url)
    standing_by = asyncio.create_task(_take_over(host, runtime, loaded, api_token))
    try:
        yield host
    finally:
        standing_by.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await standing_by


@asynccontextmanager
async def hosting_alone(runtime: Runtime, loaded: Loaded) -> AsyncIterator[str]:
    """Serve the agents of this home to this process for the block, and say where."""
    host = Host(runtime, lasting=False)
    async with _open(host, runtime, loaded, [(_LOOPBACK, (0,))], api_token=None) as url:
        yield url


async def _take_over(host: Host, runtime: Runtime, loaded: Loaded, api_token: str | None) -> None:
    while True:
        await asyncio.sleep(_TAKE_OVER_SECONDS)
        with seat(loaded.home) as is_ours:
            host.url = announced(loaded.home)
            if not is_ours:
                continue
            try:
                async with _serving(host, runtime, loaded, api_token):
                    _log.info("the other process has ended; serving its agents now", url=host.url)
                    await asyncio.Event().wait()
            except RatchetError as error:
                _log.warning("cannot serve agents now, trying again", error=str(error))


@asynccontextmanager
async def _serving(
    host: Host, runtime: Runtime, loaded: Loaded, api_token: str | None
) -> AsyncIterator[None]:
    """Be the host of the home, which is ours."""
    settings = loaded.settings.agents
    places = [(settings.host, ports_to_try(loaded, "agents.port"))]
    if settings.host != _LOOPBACK:
        # Where strangers can come in, a token is wanted; agents and commands of this machine have a door of their own.
        places.insert(0, (_LOOPBACK, (0,)))
    async with _open(host, runtime, loaded, places, api_token) as url:
        announce(loaded.home, url)
        _log.info("serving agents", url=url)
        yield


@asynccontextmanager
async def _open(
    host: Host,
    runtime: Runtime,
    loaded: Loaded,
    places: list[tuple[str, tuple[int, ...]]],
    api_token: str | None,
) -> AsyncIterator[str]:
    """Lead calls that come in at `places` to agents; the URL of the first. At the end nothing is left running."""
    # Only now: a command that finds a running host needs none of it, and importing it takes long.
    from ratchet.agents.architect_server import architect_listening

    tokens = Tokens()
    chosen = loaded.settings.server.token
    # Without an API token, nobody knows the one that opens the Architect to people.
    async with architect_listening(
        runtime, loaded, tokens, api_token=api_token or secrets.token_urlsafe()
    ) as port:
        gateway = Gateway(
            host, architect_port=lambda: port, token=None if chosen is None else chosen.get_secret_value()
        )
        try:
            urls = [await gateway.listen(address, *ports) for address, ports in places]
            host.url = urls[0]
            async with _running(host, Access(host.url, tokens)):
                try:
                    yield host.url
                finally:
                    await gateway.close(_GRACE_SECONDS)
        finally:
            await gateway.close(0)


@asynccontextmanager
async def _running(host: Host, access: Access) -> AsyncIterator[None]:
    ready = asyncio.Event()
    running = asyncio.create_task(host.run(access, ready))
    try:
        await ready.wait()
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
