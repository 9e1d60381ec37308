"""The addresses of the server and of agents: served already, or free to be."""

from __future__ import annotations

import socket

from ratchet.agents.addresses import announced
from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.doctor.run import Check
from ratchet.runtime.addresses import server_addresses


def addresses(loaded: Loaded) -> list[Check]:
    """Whether `ratchet serve` serves the API and the agents of this home, or could."""
    server, agents = loaded.settings.server, loaded.settings.agents
    running = [each.url for each in server_addresses(loaded.home)]
    hosted = announced(loaded.home)
    return [
        _check(loaded, "server", ", ".join(running), server.host),
        _check(loaded, "agents", hosted or "", agents.host),
    ]


def _check(loaded: Loaded, name: str, running: str, host: str) -> Check:
    if running:
        return Check(name, "ok", f"served at {running}")
    ports = ports_to_try(loaded, f"{name}.port")
    problem = _problem(host, ports[0])
    if problem is None:
        place = f"port {ports[0]}" if ports[0] else "any free port"
        return Check(name, "ok", f"would be served at {place} of {host}")
    if len(ports) > 1 and _problem(host, 0) is None:
        return Check(name, "ok", f"port {ports[0]} of {host} is taken: the next free one would be used")
    mend = f"set {name}.host and {name}.port, or stop the program that has the port"
    return Check(name, "warn", f"cannot be served at port {ports[0]} of {host}: {problem}", mend)


def _problem(host: str, port: int) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror
    return None
