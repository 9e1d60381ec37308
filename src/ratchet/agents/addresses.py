"""Where agents answer: the one host of a home, the addresses of each agent, and the tokens of their servers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ratchet.agents.contract import Role, agents_directory, check_name, place_of
from ratchet.files import try_lock
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.config import Loaded
    from ratchet.config.workflow_settings import Agents
    from ratchet.runtime import Runtime


@contextlib.contextmanager
def host_lock(home: Path) -> Iterator[bool]:
    """Whether this process is the host of `home`, until the block ends. A process that dies gives the right back."""
    with _lock_file(home) as descriptor:
        if not try_lock(descriptor):
            yield False
            return
        # A host that died left its own. While the right is held, no other host's is removed.
        _announcement(home).unlink(missing_ok=True)
        try:
            yield True
        finally:
            _announcement(home).unlink(missing_ok=True)


def announce(home: Path, url: str) -> None:
    """Tell other processes where the host of `home` answers. Only who has the seat may."""
    path = _announcement(home)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    new.replace(path)


def announced(home: Path) -> str | None:
    """Where the host of `home` says that it answers; `None` when there is no host or it does not say yet."""
    try:
        url = str(json.loads(_announcement(home).read_text())["url"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    with _lock_file(home) as descriptor:
        left_behind = try_lock(descriptor, shared=True)
    return None if left_behind else url


@contextlib.contextmanager
def _lock_file(home: Path) -> Iterator[int]:
    directory = agents_directory(home)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _announcement(home: Path) -> Path:
    return agents_directory(home) / "host.json"


_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)
# The longest name, the longest commit, the signature, and what parts them.
_LONGEST = 64 + 64 + 43 + 2


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whose token it is."""

    agent: str
    commit: str


class AgentTokens:
    """Made again by each process that starts agents: what an earlier one has given out is worth nothing any more."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def mint(self, agent: str, commit: str) -> str:
        """A token of plain letters, digits and `-._~`, for the environment of a server. Raises `Misuse`."""
        check_name(agent)
        if not _COMMIT.fullmatch(commit):
            raise Misuse(f"{commit[:80]!r} is not a commit", hint="name a version by its full hash")
        said = f"{agent}~{commit}"
        return f"{said}~{self._signature(said)}"

    def read(self, token: str) -> Bearer | None:
        """Whose token it is; none, unless it was made here and is whole."""
        if len(token) > _LONGEST or not token.isascii() or token.count("~") != 2:
            return None
        said, _, signature = token.rpartition("~")
        if not hmac.compare_digest(signature, self._signature(said)):
            return None
        agent, _, commit = said.partition("~")
        return Bearer(agent, commit)

    def _signature(self, said: str) -> str:
        digest = hmac.digest(self._secret, said.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def address(base: str, name: str, role: Role, commit: str | None = None) -> str:
    """The address of a server of an agent: of its current version, or always of that commit."""
    who = name if commit is None else f"{name}@{commit}"
    return f"{base}/agents/{who}/{role}/mcp"


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where its servers answer, whatever the version; `is_up` says whether a host answers there now."""

    runner: str | None
    tuner: str | None
    is_up: bool


def addresses(home: Path, settings: Agents, name: str) -> AgentAddress:
    """Both addresses of an agent, and whether a host answers there now.

    They are `None` while no host answers and the port is chosen when it starts.
    """
    running = announced(home)
    base = running or _configured(settings)
    urls = {str(role): None if base is None else address(base, name, role) for role in Role}
    return AgentAddress(**urls, is_up=running is not None)


def _configured(settings: Agents) -> str | None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}" if settings.port else None


@dataclass(frozen=True, slots=True)
class Reached:
    """A host, and the token that opens all that it serves; none, if this process cannot read it."""

    url: str
    token: str | None = field(repr=False)


def home_token(loaded: Loaded) -> str | None:
    """The token of the home, as its server made or was given it."""
    configured = loaded.settings.server.token
    if configured is not None:
        return configured.get_secret_value()
    try:
        return (loaded.home / "token").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


_ANSWER_SECONDS = 5.0
# What a host needs to answer beside its heartbeat.
_REPORT_SECONDS = 3.0
_LOOK_SECONDS = 0.1
_MOST_REPORTED = 2000


def agents_here(home: Path) -> tuple[str, ...]:
    """The agents that lie in a home, as far as its host reports them."""
    directory = agents_directory(home)
    found = sorted(each.name for each in directory.iterdir() if each.is_dir()) if directory.is_dir() else []
    return tuple(found[:_MOST_REPORTED])


async def _host_elsewhere(runtime: Runtime, name: str) -> str | None:
    """Where other machines call an agent: at the living host in whose home it lies. One is asked again that does not
    know it yet."""
    # Loaded here: commands that find the agent in their own home do not look further.
    from ratchet.runtime.processes import ask_all

    found, hosts = await asyncio.to_thread(_hosts_of, runtime, name)
    if found is not None or not hosts:
        return found
    with runtime.ledger.write(actor="agents") as tx:
        asked = ask_all(tx)
    patience = 2 * runtime.settings.runtime.heartbeat_seconds + _REPORT_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while found is None and any(hosts[each] < asked.get(each, 0) for each in hosts):
                await asyncio.sleep(_LOOK_SECONDS)
                found, hosts = await asyncio.to_thread(_hosts_of, runtime, name)
    return found


def _hosts_of(runtime: Runtime, name: str) -> tuple[str | None, dict[str, int]]:
    """The address of the host that reports an agent, and how often each host has answered."""
    from ratchet.runtime.processes import is_silent, list_processes

    dead_after = runtime.settings.runtime.dead_after_seconds
    with runtime.ledger.read() as tx:
        living = [each for each in list_processes(tx) if not is_silent(each, tx.now, dead_after)]
    hosts = {each.id: facts for each in living if (facts := each.reported()).agents_url is not None}
    found = next((facts.agents_url for facts in hosts.values() if name in facts.agents), None)
    return found, {process: facts.answered for process, facts in hosts.items()}


@asynccontextmanager
async def reached(runtime: Runtime, loaded: Loaded, agent: str | None = None) -> AsyncIterator[Reached]:
    """Where the agents of this home answer: its host, or one that serves this block alone.

    An `agent` that does not lie here is called at the host in whose home it does, by the token that all servers share.
    """
    if agent is not None and not place_of(loaded.home, agent).root.is_dir():
        elsewhere = await _host_elsewhere(runtime, agent)
        if elsewhere is not None:
            yield Reached(elsewhere, home_token(loaded))
            return
    url = announced(loaded.home)
    if url is not None and await _answers(url):
        yield Reached(url, home_token(loaded))
        return
    # Only now: a command that finds a running host needs nothing of what one is made of.
    from ratchet.agents.host.host import hosting_alone

    async with hosting_alone(runtime, loaded) as found:
        yield found


async def _answers(url: str) -> bool:
    """Whether a server speaks HTTP there."""
    parts = urlsplit(url)
    request = f"GET / HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(request)
                return (await reader.read(5)).startswith(b"HTTP/")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
