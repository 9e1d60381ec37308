"""Where the servers of a home answer, in a file for each: its lock says whether the server still lives."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.files import take_lock, try_lock

_DIRECTORY = "servers"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    host: str
    port: int

    @property
    def url(self) -> str:
        """How this machine reaches it: an address that stands for all of them cannot be called."""
        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return f"http://{self.host}:{self.port}"
        if address.is_unspecified:
            return f"http://{'127.0.0.1' if address.version == 4 else '[::1]'}:{self.port}"
        return (
            f"http://[{self.host}]:{self.port}" if address.version == 6 else f"http://{self.host}:{self.port}"
        )

    def url_for_others(self, database_host: str | None) -> str:
        """How other machines reach it. Of one that listens on every address it is the one that the database sees."""
        try:
            address = ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return self.url
        if not address.is_unspecified:
            return self.url
        return ServerAddress(_own_address(database_host) or socket.gethostname(), self.port).url


def _own_address(other: str | None) -> str | None:
    """The address of this machine on the way to another one; no packet is sent."""
    if not other or other.startswith("/"):
        return None
    try:
        family, _, _, _, place = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(place)
            return str(way.getsockname()[0])
    except OSError:
        return None


@contextlib.contextmanager
def announced(home: Path, address: ServerAddress) -> Iterator[None]:
    """Tell the other commands of this home where a server answers, for the block. What dead servers left is removed."""
    directory = home / _DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.json"):
        if _read(path) is None:
            path.unlink(missing_ok=True)
    # Locked before it has its name: whoever finds it without the lock may believe that its server is dead.
    # Named by chance: in two containers that share a home, two servers can have the same process id and port.
    descriptor, new = tempfile.mkstemp(dir=directory, prefix=".new-")
    with os.fdopen(descriptor, "w") as file:
        take_lock(file)
        json.dump({"host": address.host, "port": address.port, "pid": os.getpid()}, file)
        file.flush()
        path = Path(new).rename(directory / f"{Path(new).name.removeprefix('.new-')}.json")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def server_addresses(home: Path) -> list[ServerAddress]:
    """Where the servers of this home answer; the one that was started last comes first."""
    found = [(path.stat().st_mtime_ns, address) for path, address in _living(home)]
    return [address for _, address in sorted(found, key=lambda each: each[0], reverse=True)]


def _living(home: Path) -> Iterator[tuple[Path, ServerAddress]]:
    for path in (home / _DIRECTORY).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            address = _read(path)
            if address is not None:
                yield path, address


def _read(path: Path) -> ServerAddress | None:
    """What the file says, or nothing when its server is dead: only the living hold the lock."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError), path.open() as file:
        if not try_lock(file, shared=True):
            told = json.load(file)
            return ServerAddress(str(told["host"]), int(told["port"]))
    return None
