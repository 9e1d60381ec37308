"""The way out of an agent's servers: a proxy outside of their sandbox, which leads only where the agent is allowed to.

Names are resolved here, once, and what they resolve to is what is connected to: no second answer of a name server can
lead elsewhere, and no name leads to this machine, to its network or to the metadata of a cloud.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

from ratchet.agentkit.relay import Streams, carry_both_ways
from ratchet.kernel import Misuse, RatchetError
from ratchet.observe.logs import logger

_log = logger(__name__)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Iterable[str]]]
"""The addresses of a name, for a port. Raises `OSError`."""
Allowed = Callable[[], Awaitable[Collection[str]]]
"""What an agent may connect to, as `read_target` reads it. Raises `RatchetError`."""

_WEB_PORTS = (80, 443)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_LONGEST_NAME = 253
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Counted as public by some versions of Python: protocol assignments and the relay of 6to4 (RFC 6890, 7526), site-local
# addresses, documents (RFC 9637), and where the hosts of two clouds answer their own machines.
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20"),
    )
)


class EgressTarget(NamedTuple):
    """What an agent may connect to. Without a port it is the web: 80 and 443. `*.example.com` is every name below."""

    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def includes(self, host: str, port: int) -> bool:
        if port != self.port if self.port is not None else port not in _WEB_PORTS:
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host


def read_target(text: str) -> EgressTarget:
    """What `host`, `host:port` or `*.host` names. Raises `Misuse`."""
    host, port = _split(text.strip())
    plain = plain_host(host)
    address = address_of(plain)
    if plain is None or (port is not None and not 0 < port < 65536):
        raise Misuse(
            f"{text[:200]!r} is not a host", hint="write example.com, example.com:8443 or *.example.com"
        )
    if address is not None and not is_public(address) and port is None:
        raise Misuse(f"{text} is not a public address", hint=f"name the one port that is meant: {text}:8080")
    return EgressTarget(plain, port)


def plain_host(host: str) -> str | None:
    """A name or an address in the one way to write it; none, if it is neither."""
    text = host.strip().rstrip(".").lower()
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if (address := address_of(bare)) is not None:
        return str(address)
    star, name = ("*.", bare[2:]) if bare.startswith("*.") else ("", bare)
    try:
        spelled = star + (name if name.isascii() else name.encode("idna").decode())
    except UnicodeError:
        return None
    return spelled if len(spelled) <= _LONGEST_NAME and _NAME.fullmatch(spelled) else None


def address_of(host: str | None) -> Address | None:
    """The address that `host` is, if it is one and not a name. What only some programs take for one is a name."""
    try:
        return None if host is None else ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Whether it lies in the open internet, also where one address is written inside another."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    named = any(address in network for network in _NOT_PUBLIC if network.version == address.version)
    return address.is_global and not (address.is_multicast or address.is_reserved or named)


def _split(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return text, None
    return host, int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1


async def _resolve(host: str, port: int) -> Iterable[str]:
    loop = asyncio.get_running_loop()
    return [str(each[4][0]) for each in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _is_here(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end is an address of this machine, which may be one that counts as public."""
    own, other = (writer.get_extra_info(name) for name in ("sockname", "peername"))
    return own is not None and other is not None and own[0] == other[0]


async def no_one() -> Collection[str]:
    return ()


class Denied(Exception):
    """Nothing is connected to; the message says why."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class EgressRequest(NamedTuple):
    """Where a request wants to go, and what the other side is sent first: nothing in a tunnel."""

    host: str
    port: int
    first: bytes | None


_MOST_HEAD, _MOST_CONNECTIONS, _MOST_NOTED = 64 * 1024, 64, 100
_HEAD_SECONDS, _CONNECT_SECONDS = 30.0, 15.0
_REQUEST = re.compile(rb"([A-Z]{1,20}) (\S{1,8000}) HTTP/1\.[01]")
_URL = re.compile(r"http://([^/?#@\s]+)([/?][^#\s]*)?(?:#\S*)?", re.IGNORECASE)
_OF_THE_PROXY = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"upgrade:")


class Egress:
    """A proxy for HTTP, and by `CONNECT` for anything over TCP. `allowed` is asked at each connection."""

    def __init__(self, agent: str, allowed: Allowed, resolve: Resolve = _resolve) -> None:
        self._agent = agent
        self._allowed = allowed
        self._resolve = resolve
        self._open: set[asyncio.StreamWriter] = set()
        self._noted: set[str] = set()

    def close(self) -> None:
        """Break every connection off."""
        for writer in list(self._open):
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if len(self._open) > 2 * _MOST_CONNECTIONS:
                raise Denied("503 Service Unavailable", f"more than {_MOST_CONNECTIONS} connections at once")
            async with asyncio.timeout(_HEAD_SECONDS):
                asked = await _asked(reader)
            await self._lead((reader, writer), asked)
        except Denied as denial:
            self._note(str(denial))
            _refuse(writer, denial)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _lead(self, near: Streams, asked: EgressRequest) -> None:
        far = await self._reached(asked.host, asked.port)
        self._open.add(far[1])
        try:
            if asked.first is None:
                near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far[1].write(asked.first)
            await carry_both_ways(near, far)
        finally:
            self._open.discard(far[1])
            far[1].close()

    async def _reached(self, host: str, port: int) -> Streams:
        plain = plain_host(host)
        where = f"{host[:200]}:{port}"
        if plain is None or "*" in plain or not await self._is_allowed(plain, port):
            raise Denied(
                "403 Forbidden",
                f"agent {self._agent} may not connect to {where};"
                f" `ratchet agent egress add {self._agent} {where}` allows it",
            )
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                for address in await self._addresses(plain, port, where):
                    try:
                        far = await asyncio.open_connection(str(address), port)
                    except OSError as error:
                        reason = error.strerror or str(error)
                        continue
                    if address_of(plain) is None and _is_here(far[1]):
                        far[1].transport.abort()
                        raise Denied("403 Forbidden", f"{where} leads to {address}, which is this machine")
                    return far
        except TimeoutError:
            reason = f"no answer within {_CONNECT_SECONDS:g} s"
        raise Denied("502 Bad Gateway", f"{where} cannot be reached: {reason}")

    async def _addresses(self, host: str, port: int, where: str) -> list[Address]:
        """What to connect to. An address was allowed as such; a name must lead to nothing but public addresses."""
        own = address_of(host)
        if own is not None:
            return [own]
        try:
            found = [address_of(each) for each in dict.fromkeys(await self._resolve(host, port))]
        except (OSError, UnicodeError) as error:
            raise Denied("502 Bad Gateway", f"{where} cannot be resolved: {error}") from error
        inner = [each for each in found if each is None or not is_public(each)]
        if inner or not found:
            raise Denied(
                "403 Forbidden",
                f"{where} leads to {inner[0] if inner else 'no address'}, which is not public",
            )
        return [each for each in found if each is not None]

    async def _is_allowed(self, host: str, port: int) -> bool:
        try:
            return any(read_target(each).includes(host, port) for each in await self._allowed())
        except RatchetError as error:
            raise Denied(
                "503 Service Unavailable", f"what may be connected to is not known now: {error}"
            ) from error

    def _note(self, reason: str) -> None:
        if reason not in self._noted and len(self._noted) < _MOST_NOTED:
            self._noted.add(reason)
            _log.warning("an agent was not connected", agent=self._agent, reason=reason)


def _refuse(writer: asyncio.StreamWriter, denial: Denied) -> None:
    body = f"{denial}\n".encode(errors="replace")
    head = (
        f"HTTP/1.1 {denial.status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}"
    )
    writer.write(f"{head}\r\nconnection: close\r\n\r\n".encode() + body)


async def _asked(reader: asyncio.StreamReader) -> EgressRequest:
    """Raises `Denied` for what cannot be a request to a proxy."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, _, rest = head[:-4].partition(b"\r\n")
    read = _REQUEST.fullmatch(first)
    if read is None or len(head) > _MOST_HEAD:
        raise Denied("400 Bad Request", "this is not a request of HTTP/1.1 to a proxy")
    method, target = read[1], read[2].decode("latin-1")
    if method == b"CONNECT":
        host, port = _split(target)
        if port is None or not 0 < port < 65536:
            raise Denied("400 Bad Request", f"{target[:200]!r} is not a host and a port")
        return EgressRequest(host, port, None)
    url = _URL.fullmatch(target)
    host, port = _split(url[1]) if url else ("", None)
    port = 80 if port is None else port
    if url is None or not 0 < port < 65536:
        raise Denied("400 Bad Request", f"{target[:200]!r} is not a URL that begins with http://")
    path = url[2] or "/"
    path = path if path.startswith("/") else f"/{path}"
    # One request for each connection: the next one may be for another host.
    kept = [line for line in rest.split(b"\r\n") if line and not line.lower().startswith(_OF_THE_PROXY)]
    lines = [
        b"%b %b HTTP/1.1" % (method, path.encode("latin-1")),
        b"Host: " + url[1].encode("latin-1"),
        *kept,
    ]
    return EgressRequest(host, port, b"\r\n".join([*lines, b"Connection: close", b"", b""]))
