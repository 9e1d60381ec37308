"""Machines that share a database and an artifact store, and no disk."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.runtime.deaths import die_at
from tests.runtime.fleet import Fleet, Nursery
from tests.runtime.worker_process import load
from tests.s3 import S3Server
from tests.waiting import PATIENCE_SECONDS

AddMachine = Callable[[str], "Machine"]


class Machine:
    """A home of its own with a worker on it."""

    def __init__(self, home: Path, url: str, bucket: str, nursery: Nursery) -> None:
        home.mkdir()
        self.home = home
        self._bucket = bucket
        self._url = url
        self._flags: dict[str, object] = {}
        self.set()
        self._fleet = Fleet(home, url, nursery)
        self._worker: subprocess.Popen[str] | None = None

    def set(self, **flags: object) -> None:
        """Read the settings again, with these besides."""
        self._flags |= flags
        self.loaded = load(self.home, self._url, **{"artifacts.url": self._bucket, **self._flags})

    @property
    def flags(self) -> list[str]:
        """For a worker that is started by hand: `python -m tests.runtime.worker_process HOME URL FLAG …`."""
        return [f"{key}={value}" for key, value in {"artifacts.url": self._bucket, **self._flags}.items()]

    @property
    def url(self) -> str:
        return self._url

    def work(self) -> None:
        flags = {key.replace(".", "__"): value for key, value in self._flags.items()}
        self._worker = self._fleet.spawn(artifacts__url=self._bucket, **flags)

    def work_until(self, stage: str) -> None:
        """Work, and be killed behind a stage of the loop."""
        die_at(self.home, f"loop:{stage}")
        self.work_to_death()

    def work_to_death(self) -> None:
        """Work until what is done kills the worker."""
        self.work()
        assert self._worker is not None
        assert self._worker.wait(PATIENCE_SECONDS) == -signal.SIGKILL

    def close(self) -> None:
        self._fleet.close()


@pytest.fixture
def add_machine(
    postgres_server: PostgresServer, postgres_template: str, s3: S3Server, nursery: Nursery, tmp_path: Path
) -> Iterator[AddMachine]:
    postgres_server.start()
    url = postgres_server.create_database(template=postgres_template)
    bucket = s3.new_bucket()
    machines: list[Machine] = []

    def add(name: str) -> Machine:
        machines.append(Machine(tmp_path / name, url, bucket, nursery))
        return machines[-1]

    yield add
    for each in machines:
        each.close()
    postgres_server.drop_database(url)
