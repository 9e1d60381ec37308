"""Ports of this machine for servers that bind them only later."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from ratchet.agents.servers.relay.carrying import ADDRESS
from ratchet.kernel import RatchetError

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Below are the ports that people give to their own services.
_LOWEST, _HIGHEST = 20_000, 65_535


@contextlib.contextmanager
def leased_port() -> Iterator[int]:
    """A port that nobody listens on, and that no other Ratchet is given meanwhile.

    It is none of those that the kernel hands out by itself. A program that is not Ratchet's may still take it.
    """
    port, claim = _claim_any()
    with claim:
        yield port


def is_taken(port: int) -> bool:
    """Whether somebody listens on the port, so that a server could not."""
    with socket.socket() as probe:
        # As servers do it: connections that have ended are in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _claim_any() -> tuple[int, socket.socket]:
    ports = _candidates()
    first = random.randrange(len(ports))
    for port in ports[first:] + ports[:first]:
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            # Such a name belongs to one process, on the same network as the ports, and ends with that process.
            claim.bind(f"\0ratchet-port-{port}")
            if not is_taken(port):
                return port, claim
        claim.close()
    raise RatchetError(
        f"no port of this machine between {_LOWEST} and {_HIGHEST} is free",
        hint="`ss -tlnp` tells who listens",
    )


def _candidates() -> list[int]:
    """The ports that may be leased; where the kernel hands out all of them, any."""
    wanted = range(_LOWEST, _HIGHEST + 1)
    first, last = map(int, _EPHEMERAL.read_text().split())
    return [port for port in wanted if not first <= port <= last] or list(wanted)
