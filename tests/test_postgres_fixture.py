import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from tests.postgres import BINARIES_VARIABLE, PostgresError, PostgresServer, StopMode, find_binaries

ROOT = Path(__file__).parent.parent


def test_each_kind_of_database_url_gives_an_empty_database(database_url: str) -> None:
    engine = sqlalchemy.create_engine(database_url)
    with engine.begin() as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == []
        connection.execute(sqlalchemy.text("CREATE TABLE note (line TEXT)"))
    engine.dispose()


@pytest.mark.soak
def test_databases_are_separate_and_can_be_dropped(postgres_server: PostgresServer) -> None:
    first, second = postgres_server.create_database(), postgres_server.create_database()
    write_note(first, "kept apart")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('note')").fetchone() == (None,)
    postgres_server.drop_database(first)
    postgres_server.drop_database(first)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)
    postgres_server.drop_database(second)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_stop_in_place_keeps_the_data(postgres_server: PostgresServer, mode: StopMode) -> None:
    url = postgres_server.create_database()
    write_note(url, "still here")
    postgres_server.stop(mode)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    postgres_server.start()
    assert read_note(url) == "still here"
    postgres_server.drop_database(url)


def test_a_killed_server_starts_again_with_its_data(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    write_note(url, "survived")
    os.kill(postgres_server.pid, signal.SIGKILL)
    eventually(lambda: not postgres_server.running)
    postgres_server.restart()
    assert read_note(url) == "survived"
    postgres_server.drop_database(url)


@pytest.mark.soak
def test_fsync_is_off_unless_asked_for(postgres_server: PostgresServer) -> None:
    with PostgresServer(fsync=True) as durable:
        assert show(durable, "fsync") == "on"
        assert show(durable, "listen_addresses") == ""
    assert show(postgres_server, "fsync") == "off"
    assert not durable.directory.exists()


@pytest.mark.soak
def test_the_server_dies_with_an_owner_that_is_killed() -> None:
    program = (
        "import time; from tests.postgres import PostgresServer; server = PostgresServer(); server.start();"
        " print(server.pid, server.directory, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        owner.kill()
    eventually(lambda: not Path(directory).exists())
    eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user to change to")
def test_root_without_unshare_runs_the_server_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = find_binaries()
    if not all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
        pytest.skip(f"the user nobody cannot reach {binaries}")
    monkeypatch.setenv("PATH", "")
    with PostgresServer(binaries=binaries) as server:
        assert (server.directory / "data").stat().st_uid != 0
        assert show(server, "fsync") == "off"


def test_a_named_directory_without_a_server_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(BINARIES_VARIABLE, str(tmp_path))
    with pytest.raises(PostgresError, match=BINARIES_VARIABLE):
        find_binaries()


@pytest.mark.soak
def test_a_long_temporary_directory_does_not_break_the_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with PostgresServer() as server:
        assert show(server, "listen_addresses") == ""
    assert list(long.iterdir()) == []


def write_note(url: str, line: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE note (line TEXT)")
        connection.execute("INSERT INTO note VALUES (%s)", [line])


def read_note(url: str) -> str:
    with psycopg.connect(url) as connection:
        [line] = connection.execute("SELECT line FROM note").fetchone() or [None]
    return str(line)


def show(server: PostgresServer, setting: str) -> str:
    with psycopg.connect(server.url("postgres")) as connection:
        row = connection.execute(f"SHOW {setting}").fetchone()
    assert row is not None
    return str(row[0])


def eventually(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)
