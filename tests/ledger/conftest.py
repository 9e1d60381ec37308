"""Empty ledgers on both databases. Making tables or a database takes long, so one is copied, the other used again."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ratchet.ledger import Ledger
from ratchet.ledger.check import NUMBERED
from ratchet.ledger.tables import metadata
from tests.postgres import PostgresServer

MakeLedger = Callable[[str], Ledger]


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    Ledger.open(f"sqlite:///{path}", path.parent / "artifacts").close()
    return path


@pytest.fixture(scope="session")
def postgres_databases() -> list[str]:
    """Databases with empty tables, not in use."""
    return []


@pytest.fixture
def make_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLedger]:
    """Makes an empty ledger on `sqlite` or `postgresql`, each with an artifact store of its own."""
    numbers = itertools.count()
    opened: list[Ledger] = []

    def make(kind: str) -> Ledger:
        place = tmp_path / f"ledger-{next(numbers)}"
        place.mkdir()
        if kind == "sqlite":
            shutil.copy(request.getfixturevalue("sqlite_template"), place / "ledger.db")
            url = f"sqlite:///{place / 'ledger.db'}"
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            free: list[str] = request.getfixturevalue("postgres_databases")
            server.start()
            url = free.pop() if free else server.create_database()
        opened.append(Ledger.open(url, place / "artifacts"))
        return opened[-1]

    yield make
    for ledger in opened:
        ledger.close()
        if ledger.path is None:
            request.getfixturevalue("postgres_server").start()
            empty(ledger.url)
            request.getfixturevalue("postgres_databases").append(ledger.url)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, make_ledger: MakeLedger) -> Ledger:
    """An empty ledger; a test that asks for it runs once on each kind of database."""
    return make_ledger(request.param)


def empty(url: str) -> None:
    """Delete, rather than truncate: that makes a new file for each of fifty indexes."""
    others = (
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
    )
    with psycopg.connect(url) as connection:
        connection.execute(f"{others} AND pid <> pg_backend_pid()")
        for table in reversed(metadata.sorted_tables):
            connection.execute(f"DELETE FROM {table.name}")
        for table in NUMBERED:
            connection.execute(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1, false)")
