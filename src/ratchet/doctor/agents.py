"""The address of agents: served already, or free to be."""

from __future__ import annotations

import socket

from ratchet.agents.seat import announced
from ratchet.config import Loaded
from ratchet.doctor.check import Check

_NAME = "agents"


def agents(loaded: Loaded) -> list[Check]:
    """Whether `ratchet serve` serves the agents of this home, or could."""
    settings = loaded.settings.agents
    running = announced(loaded.home)
    if running is not None:
        return [Check(_NAME, "ok", f"served at {running}")]
    if settings.port == 0:
        return [Check(_NAME, "ok", f"would be served at {settings.host}, at any free port")]
    place = f"port {settings.port} of {settings.host}"
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        mend = "set agents.host and agents.port, or stop the program that has the port"
        return [Check(_NAME, "warn", f"cannot be served at {place}: {error.strerror}", mend)]
    return [Check(_NAME, "ok", f"would be served at {place}")]
