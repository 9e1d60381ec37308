"""What the numbers were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.sample import percentile
from benchmarks.scale import FULL, Scale
from ratchet import __version__
from tests.postgres import find_binaries

_PACKAGES = ("sqlalchemy", "psycopg", "rq", "redis", "huey")


def describe(scale: Scale) -> str:
    """One line about the run and one about the versions."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    length = "full" if scale.jobs == FULL.jobs else "quick"
    fsync = f"4 kB and fsync p50 {_fsync_ms():.2f} ms on {_file_system(Path(tempfile.gettempdir()))}"
    machine = f"{when}, {length} run, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {fsync}"
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}", _postgresql()]
    versions += [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    return f"{machine}\n\nRatchet {__version__}, {', '.join(versions)}"


def _fsync_ms() -> float:
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return percentile(taken, 0.5)


def _file_system(path: Path) -> str:
    """Its kind, by the longest mount point that holds `path`: an fsync in memory would say nothing."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [mount for mount in mounts if path.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2]


def _postgresql() -> str:
    shown = subprocess.run(
        [find_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return f"PostgreSQL {shown.stdout.split()[-1]}"
