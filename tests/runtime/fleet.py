"""Worker processes on one database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class Nursery:
    """See `tests.runtime.nursery`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.runtime.nursery"]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fork(self, home: Path, url: str, flags: dict[str, object]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(home), "url": url, "flags": flags}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer.isdigit(), (home / "worker.log").read_text()
        return int(answer)

    def close(self) -> None:
        self._process.communicate()


class Fleet:
    """Starts workers, and ends those that are left."""

    def __init__(self, home: Path, url: str, nursery: Nursery) -> None:
        self._home = home
        self._url = url
        self._nursery = nursery
        self._forked: list[int] = []
        self._spawned: list[subprocess.Popen[str]] = []

    def add(self, **flags: object) -> int:
        """The pid of a new worker that takes jobs."""
        pid = self._nursery.fork(self._home, self._url, _dotted(flags))
        self._forked.append(pid)
        return pid

    def spawn(self, **flags: object) -> subprocess.Popen[str]:
        """A worker started from nothing; its first line says that it is ready."""
        pairs = [f"{key}={value}" for key, value in _dotted(flags).items()]
        command = [sys.executable, "-m", "tests.runtime.worker_process", str(self._home), self._url, *pairs]
        with (self._home / "worker.log").open("a") as log:
            process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True)
        self._spawned.append(process)
        return process

    def await_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready"), (self._home / "worker.log").read_text()

    def kill(self, pid: int) -> None:
        self._forked.remove(pid)
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for pid in self._forked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._spawned:
            process.kill()
            process.communicate()


def _dotted(flags: dict[str, object]) -> dict[str, object]:
    return {key.replace("__", "."): value for key, value in flags.items()}
