"""Who may come in: the checks on a request before anybody is asked to answer it."""

from __future__ import annotations

import ipaddress
import secrets
from functools import lru_cache
from typing import NamedTuple

from ratchet.agents.gateway.directory import Route
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.request import METHODS, RequestHead
from ratchet.agents.gateway.routes import Architect, route_of

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HTTP_PORT = 80


class Door(NamedTuple):
    """An address that was connected to: the hosts it goes by, and whether strangers can reach it."""

    hosts: frozenset[bytes]
    guarded: bool


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


@lru_cache(maxsize=64)
def door_at(address: str, port: int, *, guarded: bool, names: tuple[str, ...]) -> Door:
    """A name with a port counts as it is; one without counts alone and with the port of the door."""
    bare = address.partition("%")[0]
    own = [*_LOOPBACK_NAMES, f"[{bare}]" if ":" in bare else bare]
    hosts = {f"{name}:{port}" for name in own}
    if port == _HTTP_PORT:
        hosts.update(own)
    for name in names:
        hosts.add(name)
        if not name.rpartition(":")[2].isdigit():
            hosts.add(f"{name}:{port}")
    return Door(frozenset(host.lower().encode() for host in hosts), guarded)


def admit(head: RequestHead, door: Door, token: bytes | None) -> Route | Architect:
    """Where a request may go. Raises `Refusal`.

    A page of another site that has its name resolved to this machine shows it in Host or Origin.
    """
    if head.host not in door.hosts:
        raise Refusal(
            403, f"{_shown(head.host)} is not served here", hint="use the address that Ratchet prints"
        )
    if head.origin is not None and not _own(head.origin, door):
        raise Refusal(403, f"pages of {_shown(head.origin)} may not call agents")
    route = route_of(head.target)
    if route is None:
        raise Refusal(
            404,
            f"{_shown(head.target)} is no address",
            hint="/agents/NAME/runner/mcp, /agents/NAME@VERSION/runner/mcp or /architect/mcp, and tuner for runner",
        )
    if head.method not in METHODS:
        allowed = b", ".join(METHODS).decode()
        raise Refusal(405, f"{_shown(head.method)} is not served here", header=f"allow: {allowed}")
    # The Architect knows more kinds of tokens than this one, and looks for itself.
    if door.guarded and not isinstance(route, Architect) and not _has_token(head, token):
        raise Refusal(401, "the token is missing or wrong", header="www-authenticate: Bearer")
    return route


def _own(origin: bytes, door: Door) -> bool:
    scheme, separator, authority = origin.lower().partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and authority in door.hosts


def _has_token(head: RequestHead, token: bytes | None) -> bool:
    scheme, _, given = (head.authorization or b"").partition(b" ")
    return token is not None and scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), token)


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("latin-1"))
