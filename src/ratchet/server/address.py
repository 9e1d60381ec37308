"""Where the API is reached: its port, which strangers do not reach, and the bearer token that it asks for.

The token is the configured one, or one that is made at the first start and kept in the home.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from ratchet.config import Loaded
from ratchet.kernel import ConfigError, Conflict, Misuse, RatchetError
from ratchet.observe.logs import logger

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


FILE_NAME = "token"
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """The token, and the file that keeps it; no file when it was configured."""

    value: str = field(repr=False)
    path: Path | None = None

    @property
    def configured(self) -> bool:
        return self.path is None

    def link(self, url: str) -> str:
        """What lets a person into the console of the server at `url`; as secret as the token."""
        return f"{url}/console/enter?token={quote(self.value, safe='')}"


def find_token(loaded: Loaded) -> Token:
    """The token in force. Servers that start at once on one home agree on one. Raises `ConfigError`."""
    configured = loaded.settings.server.token
    if configured is not None:
        return Token(configured.get_secret_value())
    path = loaded.home / FILE_NAME
    try:
        if not path.exists():
            _create(path)
        return Token(_read(path), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the API token cannot be kept in {path}: {error}",
            hint="make it readable and writable for this user, or set server.token",
        ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".token-")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass  # another server was first: its token counts
    finally:
        Path(temporary).unlink()


def _read(path: Path) -> str:
    value = path.read_text().strip()
    if not value:
        raise ConfigError(f"{path} holds no token", hint="remove the file: the next start makes a new one")
    if path.stat().st_mode & 0o077:
        _log.warning("others could read the API token; its file is private now", path=str(path))
        path.chmod(0o600)
    return value
