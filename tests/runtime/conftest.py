"""A prepared database, a runtime on it, and workers: in this process or in others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.runtime import Job, JobStatus, Runtime, Worker, get_job, open_ledger, open_runtime
from tests.postgres import PostgresServer
from tests.runtime.fleet import Fleet, Nursery
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load


def prepare(home: Path, url: str) -> None:
    loaded = load(home, url)
    with open_ledger(loaded) as ledger:
        open_runtime(loaded, ledger, make_kinds()).close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template")
    prepare(home, f"sqlite:///{home}/ledger.db")
    return home / "ledger.db"


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    url = postgres_server.create_database()
    prepare(tmp_path_factory.mktemp("template"), url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with all tables in it, copied from a template: making them anew takes a second each time."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "ledger.db")
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.start()
    fresh = server.create_database(template=request.getfixturevalue("postgres_template"))
    yield fresh
    server.start()
    server.drop_database(fresh)


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    return load(tmp_path, url)


@pytest.fixture
def ledger(loaded: Loaded) -> Iterator[Ledger]:
    with open_ledger(loaded) as opened:
        yield opened


@pytest.fixture
def runtime(loaded: Loaded, ledger: Ledger) -> Iterator[Runtime]:
    opened = open_runtime(loaded, ledger, make_kinds())
    yield opened
    opened.close()


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[Worker]:
    """A worker in this process."""
    started = Worker(runtime)
    started.start()
    yield started
    started.stop(drain_seconds=0)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


@pytest.fixture
def fleet(tmp_path: Path, url: str, nursery: Nursery) -> Iterator[Fleet]:
    started = Fleet(tmp_path, url, nursery)
    yield started
    started.close()


def eventually(check: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until `check` holds."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def ended(ledger: Ledger, job_id: int | None, seconds: float = 60.0) -> Job:
    """The job once it has ended."""
    assert job_id is not None
    eventually(lambda: look(ledger, job_id).status.final, seconds)
    return look(ledger, job_id)


def look(ledger: Ledger, job_id: int | None) -> Job:
    assert job_id is not None
    with ledger.read() as tx:
        return get_job(tx, job_id)


def status_of(ledger: Ledger, job_id: int | None) -> JobStatus:
    return look(ledger, job_id).status
