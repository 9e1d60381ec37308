"""Fixtures that every test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import PostgresServer

# A machine that is busy with other tests makes no example wrong.
settings.register_profile("ratchet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ratchet")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real PostgreSQL per test process. A test may stop it: the next `database_url` starts it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh, empty database; a test that asks for it runs once on each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.start()
    url = server.create_database()
    yield url
    server.start()
    server.drop_database(url)
