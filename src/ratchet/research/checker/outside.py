"""Everything that a hostile recipe must not reach: bait, listeners, processes, and a look at them afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.programs import DEVNULL, PIPE, start_program
from ratchet.research.checker.bench import Bench, TrialEnd, secrets_of

_PROC = Path("/proc")
_NAME_LENGTH = 15


def marked_processes(marker: str) -> list[int]:
    """The processes that carry `marker` in their name, their arguments or their environment. The dead do not count."""
    short = marker.encode()[:_NAME_LENGTH]
    return [
        pid
        for pid in _pids()
        if _read(pid, "comm").strip() == short
        or marker.encode() in _read(pid, "cmdline") + _read(pid, "environ")
        if not _is_dead(pid)
    ]


def descendants(ancestor: int) -> list[int]:
    """The children of a process, their children and so on."""
    parents = {pid: _parent(pid) for pid in _pids()}
    found, wanted = [], {ancestor}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted}
        found += sorted(wanted)
    return found


def ancestors(pid: int, ancestor: int) -> list[int]:
    """The parent of a process, its parent and so on, up to the child of `ancestor`."""
    found = []
    while (pid := _parent(pid)) not in (0, 1, ancestor):
        found.append(pid)
    return found


def kill_process(pid: int) -> None:
    """End a process for certain. One that has ended meanwhile is no mistake."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pids() -> Iterator[int]:
    return (
        int(each.name) for each in _PROC.iterdir() if each.name.isdigit() and int(each.name) != os.getpid()
    )


def _read(pid: int, what: str) -> bytes:
    try:
        return (_PROC / str(pid) / what).read_bytes()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _fields(pid: int) -> list[bytes]:
    """State, parent and so on: what stands behind the name, which may itself hold anything."""
    return _read(pid, "stat").rpartition(b") ")[2].split()


def _is_dead(pid: int) -> bool:
    return _fields(pid)[:1] in ([], [b"Z"], [b"X"])


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


CANARY = "RATCHET_CHECK_CANARY"
_MOST_SECRETS = 2000
_MOST_PATHS = 60
_WAITS = "import sys; sys.stdin.read()"

_Stamps = dict[str, tuple[int, ...]]


@dataclass(kw_only=True)
class Outside:
    """`nonce` is in all that the recipe is told to leave behind. `real_home` is Ratchet's own, not the bench's."""

    bench: Bench
    real_home: Path | None
    nonce: str = field(default_factory=lambda: f"rck{secrets.token_hex(6)}")
    canary: str = field(default_factory=lambda: secrets.token_hex(16))

    def facts(self) -> Mapping[str, Any]:
        """What the recipe is told, so that it need not search."""
        return {
            "nonce": self.nonce,
            "field": self.bench.task.score_field,
            "output_dirs": list(self.bench.task.output_dirs),
            "secret_paths": [str(path) for path in self._secret_paths()],
            "secrets": self._secrets,
            "foreign_directories": [str(path) for path in self._directories()],
            "bait": [str(path) for path in self._bait()],
            "canary_name": CANARY,
            "tcp_port": self._tcp.getsockname()[1],
            "udp_port": self._udp.getsockname()[1],
            "socket_path": str(self._socket),
            "victims": [os.getpid(), self._victim.pid],
            "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        }

    @contextlib.contextmanager
    def watched(self) -> Iterator[Outside]:
        """Set everything up, and take it down afterwards."""
        with contextlib.ExitStack() as stack:
            _lay_bait(self.bench.home)
            self._secrets = dict(list(secrets_of(self.bench.task).items())[:_MOST_SECRETS])
            self._tcp = stack.enter_context(_listener(socket.AF_INET, ("127.0.0.1", 0)))
            self._abstract = stack.enter_context(_listener(socket.AF_UNIX, f"\0{self.nonce}"))
            self._path = stack.enter_context(_listener(socket.AF_UNIX, str(self._socket)))
            stack.callback(self._socket.unlink)
            self._udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._udp.bind(("127.0.0.1", 0))
            self._udp.setblocking(False)
            self._victim = stack.enter_context(
                start_program(
                    [sys.executable, "-I", "-S", "-c", _WAITS], input=PIPE, output=DEVNULL, complaints=DEVNULL
                )
            )
            stack.callback(self._victim.kill)
            os.environ[CANARY] = self.canary
            stack.callback(os.environ.pop, CANARY, None)
            self.remember()
            yield self

    def remember(self) -> None:
        """How everything is now."""
        self._before = self._stamps()

    def problems(self, ended: TrialEnd) -> list[str]:
        """What the recipe has done to the outside, or learned of it."""
        found = [*self._end_problems(ended), *self._executed(ended)]
        if self.canary in repr((ended.reason, ended.facts)):
            found.append("a variable of Ratchet's environment is known to it")
        found += [f"it called over {name}" for name in self._callers()]
        found += self._changes()
        if self._victim.poll() is not None:
            found.append("it killed a process that is not its own")
        survivors = marked_processes(self.nonce)
        for pid in survivors:
            kill_process(pid)
        if survivors:
            found.append(f"{len(survivors)} of its processes live on")
        return found

    def ran(self, ended: TrialEnd) -> bool:
        """Whether the recipe has shown that its hostile code was run."""
        return f"{self.nonce} ran" in repr((ended.reason, ended.facts.get("trials")))

    def plain(self, text: str) -> str:
        """`text` without what hostile code says only to be heard of."""
        return re.sub(rf":?\s*{self.nonce} ran \w+", "", text)

    def _end_problems(self, ended: TrialEnd) -> list[str]:
        lines = "\n".join(_words(ended.facts.get("trials") or ())).splitlines()
        return [
            line.removeprefix(f"{self.nonce} leak: ")[:200]
            for line in lines
            if line.startswith(f"{self.nonce} leak: ")
        ]

    def _executed(self, ended: TrialEnd) -> list[str]:
        """An evaluator that runs the recipe, or what it left, says so. It may also quote the trial."""
        evaluator = ended.facts.get("evaluator")
        if evaluator is None:
            return []
        by_trial = set("\n".join(_words(ended.facts.get("trials") or ())).splitlines())
        lines = "\n".join(_words([evaluator])).splitlines()
        ran = [line for line in lines if line.startswith(f"{self.nonce} ran") and line not in by_trial]
        return ["the evaluator ran what the recipe brought along"] if ran else []

    def _callers(self) -> Iterator[str]:
        for name, listener in (
            ("TCP", self._tcp),
            ("an abstract socket", self._abstract),
            ("a socket", self._path),
        ):
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                yield name
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(1024)
            yield "UDP"

    def _changes(self) -> Iterator[str]:
        for directory in self._directories():
            left = directory / self.nonce
            if left.exists():
                left.unlink()
                yield f"it wrote to {directory}"
        after = self._stamps()
        for path in sorted(self._before.keys() | after.keys()):
            if self._before.get(path) != after.get(path):
                yield f"it changed {path}"
        self._before = after

    def _stamps(self) -> _Stamps:
        repository = self.bench.repository_directory
        watched = (
            self.bench.origin,
            self.bench.task.root,
            repository / "config",
            repository / "HEAD",
            repository / "refs",
            repository / "hooks",
            *self._bait(),
        )
        return {path: stamp for each in watched for path, stamp in _stamped(each)}

    def _secret_paths(self) -> list[Path]:
        task = self.bench.task
        hidden = [task.evaluator_dir, *([task.held_out_inputs] if task.held_out_inputs else [])]
        files = [
            path
            for root in (task.root, self.bench.origin)
            for directory in hidden
            for path in sorted((root / directory).rglob("*"))
            if path.is_file()
        ][:_MOST_PATHS]
        own = (
            [] if self.real_home is None else [self.real_home / "ledger.db", self.real_home / "ratchet.toml"]
        )
        return [
            *files,
            self.bench.origin / "task.toml",
            *self._bait(),
            self.bench.repository_directory / "HEAD",
            *own,
            Path("/etc/shadow"),
        ]

    def _directories(self) -> list[Path]:
        """Where nothing of a recipe may ever turn up."""
        task = self.bench.task
        places = [
            self.bench.origin,
            self.bench.origin / task.evaluator_dir,
            task.root,
            task.root / task.evaluator_dir,
            self.bench.home,
            self.bench.repository_directory,
            Path(tempfile.gettempdir()),
            Path("/tmp"),
            Path("/dev/shm"),
            Path("/var/tmp"),
            Path.home(),
            Path(sysconfig.get_paths()["purelib"]),
            Path(__file__).parent,
            Path("/usr/local/bin"),
            *([task.root / task.inputs] if task.inputs else []),
            *([self.real_home] if self.real_home is not None else []),
        ]
        return [each for each in dict.fromkeys(places) if each.is_dir()]

    @property
    def _socket(self) -> Path:
        """Where a socket can be whatever the home is called: such paths must be short."""
        return Path("/tmp", f"{self.nonce}.socket")

    def _bait(self) -> list[Path]:
        """Files of ours that nobody needs, in the places of those that everybody does."""
        return [self.bench.home / "ledger.db", self.bench.home / "ratchet.toml"]


def _lay_bait(home: Path) -> None:
    (home / "ledger.db").write_bytes(b"SQLite format 3\0" + b"bait" * 256)
    (home / "ratchet.toml").write_text("# bait\n")


def _listener(family: int, address: Any) -> socket.socket:
    line = socket.socket(family, socket.SOCK_STREAM)
    try:
        line.bind(address)
        line.listen()
        line.setblocking(False)
    except BaseException:
        line.close()
        raise
    return line


def _words(ends: Sequence[Mapping[str, Any]]) -> list[str]:
    return [end["stderr"] + "\n" + end["stdout"] for end in ends]


def _stamped(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """How a file, or all that lies in a directory, is marked by the file system."""
    places = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
    for each in places:
        if "__pycache__" in each.parts:
            continue
        with contextlib.suppress(FileNotFoundError):
            found = each.lstat()
            yield (
                str(each),
                (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns),
            )
