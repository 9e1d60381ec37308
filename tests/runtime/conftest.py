"""A prepared database, a runtime on it, and workers: in this process or in others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.runtime import Job, JobStatus, Runtime, Worker, get_job, open_ledger, open_runtime
from ratchet.runtime.jobs import set_paused
from tests.conftest import prepared_database
from tests.runtime.fleet import Fleet, Nursery
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with all tables in it."""
    yield from prepared_database(request, tmp_path)


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    return load(tmp_path, url)


@pytest.fixture
def ledger(loaded: Loaded) -> Iterator[Ledger]:
    with open_ledger(loaded) as opened:
        yield opened


@pytest.fixture
def runtime(loaded: Loaded, ledger: Ledger) -> Runtime:
    return open_runtime(loaded, ledger, make_kinds())


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


def ended(ledger: Ledger, job_id: int | None, seconds: float = 60.0) -> Job:
    """The job once it has ended."""
    assert job_id is not None
    eventually(lambda: look(ledger, job_id).status.final)
    return look(ledger, job_id)


def look(ledger: Ledger, job_id: int | None) -> Job:
    assert job_id is not None
    with ledger.read() as tx:
        return get_job(tx, job_id)


def status_of(ledger: Ledger, job_id: int | None) -> JobStatus:
    return look(ledger, job_id).status


def pause(runtime: Runtime, queue: str, *, paused: bool = True) -> None:
    with runtime.ledger.write() as tx:
        set_paused(tx, runtime.rules, queue, paused)
