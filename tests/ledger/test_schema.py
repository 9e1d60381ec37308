import contextlib
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from ratchet.doctor.home import ledger as doctor_ledger
from ratchet.kernel import (
    ConfigError,
    Conflict,
    LedgerCorrupt,
    LedgerError,
    LedgerTooNew,
    LedgerUnavailable,
    Misuse,
    Usage,
)
from ratchet.ledger import Budgets, Ledger, Spender, migrations
from ratchet.ledger import events as log
from ratchet.ledger.backup import backup_into
from ratchet.ledger.database import REVISIONS, current_revision, make_engine, now_ms
from ratchet.ledger.processes import process_identity
from ratchet.ledger.restore import restore
from ratchet.ledger.runs import get_run
from ratchet.ledger.tables import metadata, processes
from ratchet.ledger.usage import charge
from ratchet.runtime.processes import register
from tests.ledger.actors import acting, open_ledger
from tests.ledger.conftest import MakeLedger
from tests.postgres import PostgresServer
from tests.runtime.worker_process import load


def test_the_revisions_are_those_of_the_migrations_in_their_order() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


def test_the_migrated_schema_is_the_one_the_code_works_with(ledger: Ledger) -> None:
    def ours(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name in metadata.tables

    with ledger.engine.connect() as connection:
        assert current_revision(connection) == REVISIONS[-1]
        opts = {"include_name": ours, "compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=opts), metadata) == []


def test_partial_indexes_have_their_conditions_on_both_databases(ledger: Ledger) -> None:
    for table in metadata.sorted_tables:
        found = {index["name"]: index for index in sa.inspect(ledger.engine).get_indexes(table.name)}
        for index in table.indexes:
            dialect = ledger.engine.dialect.name
            wanted = index.dialect_options[dialect]["where"]
            stored = found[index.name].get("dialect_options", {}).get(f"{dialect}_where")
            assert (wanted is None) == (stored is None), index.name
            assert bool(found[index.name]["unique"]) == bool(index.unique), index.name


@contextlib.contextmanager
def older_ledger(database_url: str, revision: str) -> Iterator[sa.Connection]:
    """The tables as an older Ratchet made them."""
    config = Config()
    config.set_main_option("script_location", "ratchet.ledger:migrations")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        yield connection
    engine.dispose()


def test_events_of_an_older_ledger_are_those_of_their_projects(database_url: str, tmp_path: Path) -> None:
    with older_ledger(database_url, "0005") as connection:
        connection.execute(sa.text("INSERT INTO projects (id, name, created_at) VALUES (1, 'old', 1)"))
        connection.execute(
            sa.text(
                "INSERT INTO runs (id, kind, name, project_id, status, spec, simulated, used_recording, created_at,"
                " updated_at) VALUES (1, 'a', 'b', 1, 'pending', '{}', false, false, 1, 1),"
                " (2, 'a', 'c', NULL, 'pending', '{}', false, false, 1, 1)"
            )
        )
        connection.execute(
            sa.text("INSERT INTO events (at, type, actor, run_id) VALUES (1, 'x', 'y', 1), (1, 'x', 'y', 2)")
        )
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger, ledger.read() as tx:
        found = log.since(tx.connection)
    assert [(event.run_id, event.project_id) for event in found] == [(1, 1), (2, None)]


def test_opening_again_changes_nothing(database_url: str, tmp_path: Path) -> None:
    for _ in range(2):
        with Ledger.open(database_url, tmp_path / "artifacts") as ledger, ledger.write() as tx:
            tx.event("opened")
    with ledger.read() as tx:
        assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar() == 2
    ledger.close()


@pytest.mark.soak
def test_many_processes_may_create_one_ledger_at_once(database_url: str, tmp_path: Path) -> None:
    count = 4
    opened = [acting(open_ledger, database_url, tmp_path / "artifacts") for _ in range(count)]
    pipes = [each.__enter__()[1] for each in opened]
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    assert [pipe.recv() for pipe in pipes] == ["opened"] * count
    for each in opened:
        each.__exit__(None, None, None)
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger, ledger.read() as tx:
        assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar() == count


def test_a_file_that_another_process_is_just_setting_up_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE other (x)")
    # Without the write-ahead log, this is what SQLite tells others at once, instead of letting them wait.
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ("ROLLBACK",))
    release.start()
    Ledger.open(f"sqlite:///{path}", tmp_path / "artifacts").close()
    release.join()
    other.close()


def test_many_threads_may_create_one_ledger_at_once(database_url: str, tmp_path: Path) -> None:
    errors: list[Exception] = []

    def create() -> None:
        try:
            Ledger.open(database_url, tmp_path / "artifacts").close()
        except Exception as error:  # noqa: BLE001  the test shows whatever it was
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_ledger_of_a_newer_ratchet_is_refused_and_left_alone(database_url: str, tmp_path: Path) -> None:
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger, ledger.write() as tx:
        tx.connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(
        LedgerTooNew, match=f"has schema 9999; this Ratchet knows only up to {REVISIONS[-1]}"
    ) as raised:
        Ledger.open(database_url, tmp_path / "artifacts")
    assert "upgrade this one" in str(raised.value.hint)
    with ledger.engine.connect() as connection:
        assert current_revision(connection) == "9999"
    ledger.close()


def older_process(**values: object) -> sa.Insert:
    of_all = {"role": "serve", "state": "alive", "slots": 1, "busy": 0, "beat": 1, "started_at": 1}
    return sa.insert(processes).values({**of_all, "id": "box-7-abc", "version": "0.1.0", **values})


def test_a_schema_is_not_upgraded_under_a_living_process_of_this_machine(
    database_url: str, tmp_path: Path
) -> None:
    old = subprocess.Popen(["sleep", "60"])
    try:
        identity = process_identity(old.pid)
        with older_ledger(database_url, "0010") as connection:
            connection.execute(older_process(host="box", pid=old.pid, identity=identity, beat_at=1))
        with pytest.raises(Conflict, match=f"pid {old.pid} on box, Ratchet 0.1.0") as raised:
            Ledger.open(database_url, tmp_path / "artifacts")
    finally:
        old.kill()
        old.wait()
    assert "has schema 0010" in str(raised.value)
    assert "stop them, then run this again" in str(raised.value.hint)
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger, ledger.engine.connect() as connection:
        assert current_revision(connection) == REVISIONS[-1]


def test_a_schema_is_upgraded_once_the_processes_of_other_machines_are_silent(
    database_url: str, tmp_path: Path
) -> None:
    with older_ledger(database_url, "0010") as connection:
        connection.execute(older_process(host="far", pid=7, identity="", beat_at=now_ms() + 60_000))
    with pytest.raises(Conflict, match="pid 7 on far"):
        Ledger.open(database_url, tmp_path / "artifacts")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.update(processes).values(beat_at=now_ms() - 61_000))
    engine.dispose()
    Ledger.open(database_url, tmp_path / "artifacts").close()


@pytest.mark.parametrize("hours", [5, -5])
def test_who_lives_is_judged_by_the_clock_of_the_database(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    url = postgres_server.create_database()
    beaten = now_ms() - (10_000 if hours > 0 else 120_000)
    with older_ledger(url, "0010") as connection:
        connection.execute(older_process(host="far", pid=7, identity="", beat_at=beaten))
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3600 * 10**9)
    if hours > 0:
        with pytest.raises(Conflict, match="pid 7 on far"):
            Ledger.open(url, tmp_path / "artifacts")
        return
    with Ledger.open(url, tmp_path / "artifacts") as ledger:
        with ledger.write() as tx:
            charge(tx, Spender(None, None, None), Usage(input_tokens=3), Budgets(), engine="test")
        with ledger.read() as tx:
            days = tx.connection.execute(sa.text("SELECT day FROM usage_days")).scalars().all()
            used = tx.connection.execute(sa.text("SELECT at FROM usage")).scalars().all()
    assert abs(used[0] - real() // 10**6) < 60_000
    assert days == [used[0] // 86_400_000]


@pytest.mark.parametrize("revision", ["0005", "0010"])
def test_a_ledger_of_an_older_schema_is_backed_up_as_it_is_while_older_processes_work(
    database_url: str, make_ledger: MakeLedger, tmp_path: Path, revision: str
) -> None:
    with older_ledger(database_url, revision) as connection:
        if revision == "0010":
            far = {"host": "far", "pid": 7, "identity": "", "beat_at": now_ms() + 60_000}
            connection.execute(older_process(**far))
        connection.execute(sa.text("INSERT INTO projects (id, name, created_at) VALUES (7, 'old', 1)"))
        connection.execute(
            sa.text("INSERT INTO events (at, type, actor, data) VALUES (1, 'x', 'y', :data)"),
            {"data": '{"a":[1]}'},
        )
    home = tmp_path / "home"
    (home / "agents").mkdir(parents=True)
    (home / "agents" / "file").write_text("kept")
    [advice] = [each for each in doctor_ledger(load(home, database_url)) if each.name == "ledger schema"]
    assert "ratchet backup" in str(advice.fix)
    with Ledger.open(database_url, home / "artifacts", upgrade=False) as ledger:
        for _ in range(2):
            backup_into(ledger, tmp_path / "backups")
        with ledger.engine.connect() as connection:
            assert current_revision(connection) == revision
    target = make_ledger("sqlite")
    restore(target, tmp_path / "backups")
    with target.read() as tx:
        [event] = log.since(tx.connection, where=log.EventFilter(type="x"))
        names = tx.connection.execute(sa.text("SELECT name FROM projects")).scalars().all()
    assert (event.data, names) == ({"a": [1]}, ["old"])
    assert (target.artifacts.root.parent / "agents" / "file").read_text() == "kept"


def test_a_process_does_not_join_a_ledger_that_was_upgraded_since_it_was_opened(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    try:
        with pytest.raises(LedgerTooNew), ledger.write() as tx:
            register(tx, "box-7-abc", "worker", 1)
    finally:
        with ledger.write() as tx:
            tx.connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{REVISIONS[-1]}'"))


def test_a_database_of_something_else_is_refused_and_left_alone(database_url: str, tmp_path: Path) -> None:
    engine = sa.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE runs (distance INTEGER)"))
    with pytest.raises(LedgerCorrupt, match="has tables of something else in it: runs") as raised:
        Ledger.open(database_url, tmp_path / "artifacts")
    assert raised.value.hint == "give Ratchet a database of its own"
    assert sa.inspect(engine).get_table_names() == ["runs"]
    engine.dispose()


@pytest.mark.parametrize("version", ["0003", "0003_add_policy"])
def test_a_database_of_another_program_that_numbers_its_schema_is_refused(
    database_url: str, tmp_path: Path, version: str
) -> None:
    engine = sa.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE projects (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})
    with pytest.raises(LedgerCorrupt, match="has tables of something else in it: projects"):
        Ledger.open(database_url, tmp_path / "artifacts")
    assert sorted(sa.inspect(engine).get_table_names()) == ["alembic_version", "projects"]
    engine.dispose()


@pytest.mark.parametrize(
    "content",
    [
        b"These are my notes, not a database at all. " * 100,
        b"SQLite format 3\x00" + b"\xff" * 5000,
        b"\x00" * 8192,
    ],
    ids=["text", "header only", "zeros"],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt, match="damaged or is not a ledger") as raised:
        Ledger.open(f"sqlite:///{path}", tmp_path / "artifacts")
    assert "ratchet ledger restore" in str(raised.value.hint)
    assert path.read_bytes() == content


def test_a_damaged_ledger_says_so_when_the_damage_is_met(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Ledger.open(url, tmp_path / "artifacts") as ledger, ledger.write() as tx:
        for number in range(2_000):
            tx.event("counted", data={"text": "x" * 500, "number": number})
    ledger.close()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (tmp_path / "ledger.db").open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size // 2)
        file.write(b"\xde\xad\xbe\xef" * (size // 16))
    ledger = Ledger.open(url, tmp_path / "artifacts")
    with pytest.raises(LedgerCorrupt, match="damaged"), ledger.read() as tx:
        tx.connection.execute(sa.text("SELECT sum(length(data)) FROM events")).scalar()
    ledger.close()


def test_a_table_that_was_dropped_is_damage_and_not_an_outage(database_url: str, tmp_path: Path) -> None:
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger:
        with ledger.write() as tx:
            tx.connection.execute(sa.text("DROP TABLE usage"))
        with pytest.raises(LedgerError, match="usage") as raised, ledger.read() as tx:
            tx.connection.execute(sa.text("SELECT * FROM usage"))
    assert not isinstance(raised.value, LedgerUnavailable)


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**70)])
def test_a_number_that_no_row_can_have_is_not_found_or_refused(ledger: Ledger, number: int) -> None:
    with pytest.raises(Exception) as raised, ledger.read() as tx:  # noqa: PT011  the two databases differ
        get_run(tx, number)
    assert type(raised.value).__name__ in ("Misuse", "NotFound")


def test_a_value_that_does_not_fit_is_misuse_and_not_an_outage(ledger: Ledger) -> None:
    with pytest.raises(Misuse, match="does not fit into the ledger"), ledger.write() as tx:
        tx.event("large", run_id=2**70)


@pytest.mark.parametrize("url", ["mysql://root@host/db", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
def test_an_address_that_cannot_be_a_ledger_is_a_mistake_in_the_configuration(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        Ledger.open(url, tmp_path / "artifacts")
    assert "sqlite:///path" in str(raised.value.hint)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://me:hush@/db?host={tmp_path}"
    with pytest.raises(LedgerUnavailable, match="did not answer") as raised:
        Ledger.open(url, tmp_path / "artifacts")
    assert "hush" not in str(raised.value)
    assert "ratchet doctor" in str(raised.value.hint)


def test_passwords_in_the_query_of_an_address_are_not_told(tmp_path: Path) -> None:
    url = f"postgresql://me@/db?host={tmp_path}&password=hush&sslpassword=quiet&passw%6Frd=silent"
    with pytest.raises(LedgerUnavailable, match="did not answer") as raised:
        Ledger.open(url, tmp_path / "artifacts")
    assert not {"hush", "quiet", "silent"} & set(re.findall(r"\w+", str(raised.value)))
    assert "host=" in str(raised.value)


def test_a_postgresql_without_an_encoding_is_refused_by_name(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.create_database(encoding="SQL_ASCII")
    with pytest.raises(LedgerError, match="SQL_ASCII") as raised:
        Ledger.open(url, tmp_path / "artifacts")
    assert "UTF8" in str(raised.value.hint)
    [check] = doctor_ledger(load(tmp_path, url))
    assert (check.status, "SQL_ASCII" in check.detail) == ("fail", True)
