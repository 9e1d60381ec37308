"""The process of a server: its sandbox, its network, its port, and what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ratchet.agentkit.relay import ADDRESS, TO_OTHERS, TO_RATCHET, TO_SERVER, Relay, Streams, opened
from ratchet.agentkit.store import StateStore
from ratchet.agents.contract import LOGS, SHARED, UNTRACKED, Role
from ratchet.agents.servers.egress import Allowed, Egress, no_one
from ratchet.agents.servers.environment import kit_only, packages_of, server_start
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import decoded
from ratchet.sandbox import Bounds, Broken, CannotStart, Finished, Policy, Running, Stopped, start

MOST_BYTES = 1024 * 1024
"""Of one file; the one before it is kept as well."""
_TAIL_BYTES = 16 * 1024
_MASK = b"***"
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


class Printed:
    """Takes what a server prints. Trouble with the file never reaches the server: then only the end is kept.

    The directory belongs to the agent, which may put links and worse there, so nothing is opened through a link.
    """

    def __init__(self, directory: Path, role: Role, secrets: Sequence[str] = ()) -> None:
        """What it prints of `secrets` is kept out of the file and of the tail."""
        self._name = f"{role}.out"
        self._tail = bytearray()
        self._secrets = sorted((each.encode() for each in secrets if each), key=len, reverse=True)
        # The end of what came, as long as a secret may begin in it.
        self._held = b""
        self._folder: int | None = None
        self._file: int | None = None
        self._size = 0
        with contextlib.suppress(OSError):
            self._folder = _open_folder(directory)
            self._open()

    @property
    def tail(self) -> str:
        return decoded(self._tail)

    def take(self, piece: bytes) -> None:
        piece = self._masked(self._held + piece) if self._secrets else piece
        self._tail += piece
        del self._tail[:-_TAIL_BYTES]
        try:
            self._keep(piece)
        except OSError:
            self._close_file()

    def _masked(self, piece: bytes) -> bytes:
        for secret in self._secrets:
            piece = piece.replace(secret, _MASK)
        begun = max((_overlap(piece, secret) for secret in self._secrets), default=0)
        self._held = piece[len(piece) - begun :]
        return piece[: len(piece) - begun]

    def close(self) -> None:
        self._close_file()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _keep(self, piece: bytes) -> None:
        if self._file is None:
            return
        if self._size + len(piece) > MOST_BYTES:
            self._close_file()
            os.replace(self._name, f"{self._name}.1", src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._open()
        self._size += os.write(self._file, piece)

    def _open(self) -> None:
        flags = _OPEN | os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        self._file = os.open(self._name, flags, 0o644, dir_fd=self._folder)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self._close_file()
        self._size = found.st_size

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _overlap(text: bytes, secret: bytes) -> int:
    """How many bytes at the end of `text` the secret begins with."""
    most = min(len(text), len(secret) - 1)
    return next((number for number in range(most, 0, -1) if text.endswith(secret[:number])), 0)


def _open_folder(directory: Path) -> int:
    """The directory of logs, which is made if it is missing."""
    top = os.open(directory, _OPEN | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(LOGS, dir_fd=top)
        return os.open(LOGS, _OPEN | os.O_DIRECTORY, dir_fd=top)
    finally:
        os.close(top)


@asynccontextmanager
async def relayed(port: int, ratchet_port: int, others: Egress | None = None) -> AsyncIterator[Path]:
    """Carry what comes to `port` of this machine into a directory, and what comes out of it to Ratchet's port, or to
    `others`, which answers as a proxy does.

    Raises `OSError` if the port is taken.
    """
    # Slow to import, and a command that only looks at an agent starts none.
    from ratchet.judges.scratch import scratch

    async with scratch() as folder:
        inward = Relay(lambda: _reach(folder / TO_SERVER))
        outward = Relay(lambda: asyncio.open_connection(ADDRESS, ratchet_port))
        with (
            opened(folder) as short,
            closing(inward),
            closing(outward),
            closing(await asyncio.start_server(inward.take, ADDRESS, port)),
            closing(await asyncio.start_unix_server(outward.take, short / TO_RATCHET)),
            ExitStack() as held,
        ):
            if others is not None:
                held.enter_context(closing(others))
                held.enter_context(closing(await asyncio.start_unix_server(others.take, short / TO_OTHERS)))
            yield folder


async def _reach(path: Path) -> Streams:
    """Connect to the socket at `path`, but not through a link, which the server could have put there."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise ConnectionRefusedError(f"{path} is not a socket")
        return await asyncio.open_unix_connection(f"/proc/self/fd/{place}")
    finally:
        os.close(place)


@dataclass(frozen=True, slots=True)
class Launch:
    """A version of an agent in its directory, and where its servers find Ratchet on this machine.

    `environment` is what they are given besides the variables that follow from the rest; it is the only way in which a
    secret, such as the version's own token, can reach them.
    """

    agent: str
    commit: str
    directory: Path
    architect_port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    allowed: Allowed = no_one
    """What its servers may connect to besides Ratchet, asked at each connection."""
    secrets: Callable[[], Mapping[str, str]] = dict
    """More of their environment, which is opened when a server starts and is in no record. It may wait."""


_MIB = 1024 * 1024
# A server runs until it is no longer wanted, which is for others to say.
_FOREVER_SECONDS = 100 * 365 * 24 * 3600.0
# Servers are many and mostly idle.
_LOOK_SECONDS, _IDLE_LOOK_SECONDS = 0.2, 2.0
_OTHERS_PORT = 3128
_LOW_PORTS = 1024
COMPILED = "__pycache__"
_WRITTEN = frozenset(UNTRACKED) - {".git", SHARED}


def policy_for(
    launch: Launch, role: Role, relay: Path | None, secrets: Mapping[str, str], packages: Path | None
) -> Policy:
    """A server sees its version, its packages, Python and the kit. It writes its state and logs, not its code.

    With the directory of a `relay`, that is its only way to the network.
    """
    places = dict.fromkeys([launch.directory, StateStore(launch.directory).place])
    policy = Policy(
        network=relay is None,
        readable=() if packages is None else (packages,),
        writable=(*places,) if relay is None else (*places, relay),
        read_only=code_of(launch.directory),
        # What lies compiled beside the code, the agent itself could have written.
        hidden=(launch.directory / COMPILED,),
        environment={
            **environment_of(launch, role, relay, secrets),
            **({} if packages is None else {"PYTHONPATH": str(packages)}),
        },
    )
    return kit_only(policy)


def code_of(directory: Path) -> tuple[Path, ...]:
    """The entries of a version's directory that its servers must not change: all but what a running agent writes.

    A link is none of them: a version has none, so that was made by a running agent.
    """
    return tuple(
        path for path in sorted(directory.iterdir()) if path.name not in _WRITTEN and not path.is_symlink()
    )


def environment_of(
    launch: Launch, role: Role, relay: Path | None, secrets: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a server. Nothing of ours is in it but what the launch names."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")),
        # The sandbox has one of its own, which is empty.
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RATCHET_AGENT": launch.agent,
        "RATCHET_AGENT_COMMIT": launch.commit,
        "RATCHET_AGENTS_URL": f"http://{ADDRESS}:{_ratchet_port(launch, relay)}",
        **({} if relay is None else _proxy_of(launch, relay)),
        **secrets,
        # By which the kit knows what to keep out of logs and answers.
        **({"RATCHET_AGENT_SECRETS": ",".join(secrets)} if secrets else {}),
        **launch.environment,
        "RATCHET_AGENT_ROLE": role,
    }


def _proxy_of(launch: Launch, relay: Path) -> dict[str, str]:
    """By what a server finds the way to others, as most programs understand it."""
    proxy, direct = f"http://{ADDRESS}:{_others_port(launch, relay)}", f"{ADDRESS},localhost"
    names = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct}
    return names | {name.upper(): value for name, value in names.items()}


def _ratchet_port(launch: Launch, relay: Path | None) -> int:
    """Where a server finds Ratchet: its relay listens in a network of its own, as a user who may take no low port."""
    port = launch.architect_port
    return port + _LOW_PORTS if relay is not None and port < _LOW_PORTS else port


def _others_port(launch: Launch, relay: Path) -> int:
    """Of the server's own network, where nobody but Ratchet has one below those that servers are given."""
    return _OTHERS_PORT + (_ratchet_port(launch, relay) == _OTHERS_PORT)


def bounds_for(settings: Agents) -> Bounds:
    """How much a server may use.

    Memory and processes hold for all that it starts; threads are bounded as well, at eight for each process. A share of
    a processor cannot be enforced without rights over the machine: `cpus` is rounded down to whole processors, at
    least one, and the server stays on as many of them, picked at random.
    """
    return Bounds(
        wall_seconds=_FOREVER_SECONDS,
        memory_bytes=settings.memory_mb * _MIB,
        processes=settings.processes,
        cpus=_processors(settings.cpus),
        look_seconds=_LOOK_SECONDS,
        idle_look_seconds=_IDLE_LOOK_SECONDS,
    )


def _processors(wanted: float) -> tuple[int, ...]:
    there = sorted(os.sched_getaffinity(0))
    if wanted == 0 or wanted >= len(there):
        return ()
    return tuple(sorted(random.sample(there, max(1, int(wanted)))))


_Result = TypeVar("_Result")


class ServerEnded(Exception):
    """The process has ended; the message tells why."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    role: Role
    port: int
    printed: Printed
    _running: Running
    _settings: Agents

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/mcp"

    async def ended(self) -> str:
        """Wait until it ends; why it did."""
        try:
            finished = await self._running.wait()
        except (Broken, CannotStart) as error:
            return str(error)
        return self._reason(finished)

    async def while_it_runs(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """What comes of `work`, which is given up when the process ends first: that raises `ServerEnded`."""
        working, ending = asyncio.create_task(work), asyncio.create_task(self.ended())
        try:
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise ServerEnded(ending.result())
            return working.result()
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)

    def _reason(self, finished: Finished) -> str:
        file = self.role.file
        match finished.stopped:
            case Stopped.MEMORY:
                most = f"{self._settings.memory_mb} MB of memory (agents.memory_mb)"
            case Stopped.PROCESSES:
                most = f"{self._settings.processes} processes (agents.processes)"
            case Stopped.CANCELLED:
                return f"{file} was ended by Ratchet"
            case _:
                return f"{file} {finished.problem or 'ended with exit code 0'}"
        return f"{file} was ended because it used more than {most}"


@asynccontextmanager
async def running(launch: Launch, role: Role, port: int, settings: Agents) -> AsyncIterator[ServerProcess]:
    """The process for the block, whose end ends its tree. Raises `IsolationRefused`, and `OSError` for a taken port."""
    async with AsyncExitStack() as held:
        secrets = await asyncio.to_thread(launch.secrets)
        printed = held.enter_context(closing(Printed(launch.directory, role, tuple(secrets.values()))))
        relay = None
        if not settings.network:
            others = Egress(launch.agent, launch.allowed)
            relay = await held.enter_async_context(relayed(port, launch.architect_port, others))
        ratchet_port = _ratchet_port(launch, relay)
        argv = [role.file, str(port), *([str(ratchet_port)] if role is Role.TUNER else [])]
        if relay is not None:
            argv = [str(relay), *map(str, (port, ratchet_port, _others_port(launch, relay))), *argv]
        packages = await packages_of(launch.directory)
        policy = await asyncio.to_thread(policy_for, launch, role, relay, secrets, packages)
        run = await held.enter_async_context(
            start(
                argv,
                cwd=launch.directory,
                bounds=bounds_for(settings),
                policy=policy,
                hear=printed.take,
                warm=server_start(alone=relay is None),
            )
        )
        yield ServerProcess(role, port, printed, run, settings)
