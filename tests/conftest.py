"""Fixtures that every test may ask for."""

import gc
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import PostgresServer
from tests.s3 import KEYS, S3Server, start_s3

pytest_plugins = ["tests.tiers"]

# A shell has what it starts in the background ignore these, and the tests of signals would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# A machine that is busy with other tests makes no example wrong.
settings.register_profile("ratchet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ratchet")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end; a quarter of the time went into looking for garbage in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real PostgreSQL per test process. A test may stop it: the next `database_url` starts it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    server = start_s3()
    yield server
    server.close()


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A real S3 server, with the keys for it in the environment."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return s3_process


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database; a test that asks for it runs once on each kind."""
    yield from empty_database(request, tmp_path)


def empty_database(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """The URL of a database of the kind `request.param` with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{directory / 'ledger.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.start()
    url = server.create_database()
    yield url
    server.start()
    server.drop_database(url)


def prepared_database(request: pytest.FixtureRequest, directory: Path) -> Iterator[str]:
    """The URL of a database of the kind `request.param` with all tables in it; making them takes a second each time."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), directory / "ledger.db")
        yield f"sqlite:///{directory / 'ledger.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.start()
    fresh = server.create_database(template=request.getfixturevalue("postgres_template"))
    yield fresh
    server.start()
    server.drop_database(fresh)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template")
    _make_tables(home, f"sqlite:///{home}/ledger.db")
    return home / "ledger.db"


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    url = postgres_server.create_database()
    _make_tables(tmp_path_factory.mktemp("template"), url)
    return url


def _make_tables(home: Path, url: str) -> None:
    # Here, because many tests need no ledger and it takes long to load.
    from ratchet.ledger import Ledger

    Ledger.open(url, home / "artifacts").close()
