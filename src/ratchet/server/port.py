"""Taking the port, and refusing to be reachable by strangers."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

from ratchet.kernel import ConfigError, Conflict, Misuse, RatchetError

_BACKLOG = 2048


def listen(host: str, *ports: int, token_configured: bool) -> socket.socket:
    """A socket that listens on `host` and the first of `ports` that is free (0 takes any).

    Only this machine can reach a loopback address; anywhere else the token must be one that somebody chose.
    """
    for port in ports[:-1]:
        with contextlib.suppress(Conflict):
            return _listen(host, port, token_configured)
    return _listen(host, ports[-1], token_configured)


def _listen(host: str, port: int, token_configured: bool) -> socket.socket:
    family, address = _resolve(host, port)
    if not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback and not token_configured:
        raise ConfigError(
            f"other machines can reach {host}, and no server.token is configured; a generated one does not count",
            hint="set server.token in ratchet.toml (or RATCHET_SERVER__TOKEN) to a long random text,"
            " or listen on 127.0.0.1",
        )
    # Named as TCP, or asyncio does not switch off Nagle, and every answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # At once: two sockets can be bound to one port, and the second to listen would find out too late.
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise _explained(error, host, port) from error
    return bound


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if bound.family == socket.AF_INET6 else f"http://{host}:{port}"


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError, OverflowError) as error:
        raise Misuse(
            f"cannot listen on {host}:{port}: {error}", hint="use an address of this machine"
        ) from error
    # `localhost` has two addresses; most programs try the older one first.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address  # type: ignore[return-value]


def _explained(error: OSError, host: str, port: int) -> RatchetError:
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"port {port} of {host} is taken",
            hint="stop the program that has it, or take a free one with `ratchet serve --port 0`",
        )
    if error.errno == errno.EACCES:
        return Misuse(f"this user may not listen on port {port}", hint="use a port of 1024 or above")
    return Misuse(f"cannot listen on {host}:{port}: {error.strerror}", hint="use an address of this machine")
