"""A machine that was just set up: an empty home, no git identity, no key, and system programs only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS = 400.0


@dataclass(frozen=True)
class Machine:
    """`ratchet` in an empty directory."""

    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / ".ratchet"

    def ratchet(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._argv(*words),
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The same, to be watched while it runs. All that is left of it in the end is killed."""
        process = subprocess.Popen(
            self._argv(*words),
            cwd=self.directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ratchet.cli", "--home", str(self.home), *words]

    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self.directory), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it told until it told `text`, with that line."""
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if text in line:
            return told
    raise AssertionError(f"it ended without telling {text!r}: {told}")
