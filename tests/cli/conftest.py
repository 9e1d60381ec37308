"""Homes with a ledger, and two ways to call `ratchet` on them: in this process, and in one of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.cli import run
from ratchet.config import load_settings
from ratchet.ledger import Ledger
from ratchet.runtime import Kinds, Runtime, open_ledger, open_runtime
from tests.cli.program import Ended, Program
from tests.conftest import empty_database, prepared_database

Ratchet = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """A command called in this process sets up its logging; the next test must not find it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("RATCHET_") and not name.startswith("RATCHET_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with all tables in it, or with none for a test marked `no_ledger`; once on each kind."""
    bare = request.node.get_closest_marker("no_ledger") is not None
    yield from (empty_database if bare else prepared_database)(request, tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".ratchet"


@pytest.fixture
def ratchet(home: Path, database_url: str) -> Ratchet:
    """Calls `ratchet` here, quicker than in a process of its own, on a new home and each kind of database."""

    def call(*arguments: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["--home", str(home), "--database-url", database_url, *arguments])
        return Ended(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def ledger(home: Path, database_url: str) -> Iterator[Ledger]:
    """The ledger of that home, made."""
    loaded = load_settings({"home": str(home), "database_url": database_url}, env={})
    with open_ledger(loaded) as ledger:
        yield ledger


@pytest.fixture
def runtime(home: Path, database_url: str, ledger: Ledger) -> Runtime:
    loaded = load_settings({"home": str(home), "database_url": database_url}, env={})
    kinds = Kinds()
    for name in ("test.slow", "test.fails", "demo.primes"):
        kinds.add(name, lambda _job: None)
    return open_runtime(loaded, ledger, kinds)


@pytest.fixture
def program(tmp_path: Path, database_url: str, plugins: Path) -> Program:
    """The real program on the same home and database, with the test's own kinds of jobs installed."""
    return Program(tmp_path, database_url, plugins)


@pytest.fixture
def plain_program(tmp_path: Path) -> Program:
    """The real program where nothing is configured."""
    return Program(tmp_path)


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH with an installed package that adds kinds of jobs."""
    return install_plugin(tmp_path / "plugins", KINDS)


@pytest.fixture
def ending() -> Iterator[Callable[[subprocess.Popen[str]], subprocess.Popen[str]]]:
    """Has every process it is given ended with the test, whatever happens."""
    started: list[subprocess.Popen[str]] = []

    def keep(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        started.append(process)
        return process

    yield keep
    for process in started:
        process.kill()
        process.communicate()


def install_plugin(directory: Path, code: str, points: str = "ratchet.jobs:test=add_kinds") -> Path:
    """A package on its own path. `points` is GROUP:NAME=ATTRIBUTE of its one entry point."""
    group, _, point = points.partition(":")
    label, _, attribute = point.partition("=")
    name = "ratchet_test_kinds"
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{label} = {name}:{attribute}\n")
    (directory / f"{name}.py").write_text(code)
    return directory


KINDS = '''
import asyncio
from pathlib import Path

async def slow(job):
    """Says where that it began, takes its time, and says that it ended."""
    place = Path(job.payload["place"])
    (place / "began").touch()
    await asyncio.sleep(job.payload["seconds"])
    (place / "ended").touch()
    return "done"

def fails(job):
    raise ValueError("out of luck")

def add_kinds(kinds):
    kinds.add("test.slow", slow)
    kinds.add("test.fails", fails)
'''
