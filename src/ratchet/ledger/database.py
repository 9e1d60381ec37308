"""The two databases: how to connect, begin a transaction, upgrade the tables, and what their errors mean."""

from __future__ import annotations

import contextlib
import itertools
import re
import select
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from ratchet import __version__
from ratchet.files import turn_on_wal
from ratchet.kernel import (
    ConfigError,
    Conflict,
    LedgerCorrupt,
    LedgerError,
    LedgerTooNew,
    LedgerUnavailable,
    Misuse,
    RatchetError,
)

BUSY_MS = 30_000
_CLOCK = sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
_PASSWORD = re.compile("passw", re.IGNORECASE)
_CORRUPT = (
    "not a database",
    "malformed",
    "file is encrypted",
    "database corruption",
    "no such table",
    "no such column",
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def database_now_ms(connection: sa.Connection) -> int:
    """The time of the database; with SQLite it is that of this machine."""
    return now_ms() if connection.dialect.name == "sqlite" else int(connection.execute(_CLOCK).scalar_one())


def make_engine(url: str) -> sa.Engine:
    """An engine for `sqlite:///path` or `postgresql://…`."""
    parsed = _parse(url)
    engine = _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)

    @event.listens_for(engine, "handle_error")
    def refuse(context: sa.ExceptionContext) -> None:
        error = context.original_exception
        if isinstance(error, OverflowError):
            raise _unfit(error)
        if isinstance(error, RatchetError):  # of a column's type: it says more than SQLAlchemy would
            raise error

    return engine


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; `None` for PostgreSQL."""
    parsed = _parse(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def shown(url: str) -> str:
    """The URL without its passwords, also those in its query."""
    parsed = _parse(url)
    hidden = {name: "***" for name in parsed.query if _PASSWORD.search(name)}
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True)


def _without_passwords(text: str, url: sa.URL) -> str:
    """What a driver says, without the passwords that it was given."""
    queried = [values for name, values in url.normalized_query.items() if _PASSWORD.search(name)]
    for each in filter(None, [url.password, *itertools.chain(*queried)]):
        text = text.replace(each, "***")
    return text


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn a driver's error into one that says what to do."""
    try:
        yield
    except exc.IntegrityError:
        raise
    except exc.DataError as error:
        raise _unfit(error.orig or error) from error
    except (exc.DBAPIError, exc.TimeoutError) as error:
        raise explain(error, url) from error


def explain(error: Exception, url: str) -> LedgerError:
    """The ledger error that `error` amounts to."""
    text = _without_passwords(str(getattr(error, "orig", None) or error).strip(), _parse(url))
    low = text.lower()
    place = shown(url)
    if any(word in low for word in _CORRUPT):
        return LedgerCorrupt(
            f"{place} is damaged or is not a ledger: {text}",
            hint="restore a backup with `ratchet ledger restore FILE`, or move the file away to start again",
        )
    if "readonly" in low or "read-only" in low:
        return LedgerUnavailable(
            f"{place} cannot be written: {text}",
            hint="make the file and its directory writable for this user",
        )
    if "disk is full" in low or "no space left" in low or "disk i/o" in low:
        return LedgerUnavailable(
            f"the disk of {place} is full or failing: {text}",
            hint="free some space (`ratchet ledger vacuum` helps), then try again: nothing that was committed is lost",
        )
    if "locked" in low or "busy" in low or "lock timeout" in low:
        return LedgerUnavailable(
            f"{place} stayed locked for {BUSY_MS // 1000} s: {text}",
            hint="another program holds it; `ratchet doctor` shows who works on it",
        )
    if "unable to open" in low:
        return LedgerUnavailable(
            f"{place} cannot be opened: {text}", hint="its directory must exist and be writable for this user"
        )
    if "deadlock" in low:
        return LedgerUnavailable(
            f"two writers of {place} waited for each other: {text}",
            hint="nothing of this one was written; try again",
        )
    if isinstance(error, exc.ProgrammingError):
        return LedgerError(
            f"{place} refused: {text}", hint="may this user make and change tables? `ratchet ledger check`"
        )
    return LedgerUnavailable(
        f"{place} did not answer: {text}", hint="check that the database is up: `ratchet doctor`"
    )


def begin_writing(connection: sa.Connection) -> None:
    """Begin a transaction that may write. On SQLite it is the only writer from now on."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def begin_reading(connection: sa.Connection) -> None:
    """Begin a transaction that sees one moment of the database; on PostgreSQL it cannot write."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
    else:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def refuse_failed(connection: sa.Connection) -> None:
    """Raise if a statement of the transaction has failed: PostgreSQL would roll back, and not call that an error."""
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.dbapi_connection
        if driver.info.transaction_status.name == "INERROR":
            raise exc.PendingRollbackError(
                "a statement of this transaction has failed: it cannot be committed"
            )


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url.replace("postgres://", "postgresql://", 1))
    except exc.ArgumentError as error:
        raise ConfigError("database_url is not a URL", hint="use sqlite:///path or postgresql://…") from error
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"database_url names {parsed.get_backend_name()!r}", hint="use sqlite:///path or postgresql://…"
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("the ledger must be a file, not an in-memory database", hint="use sqlite:///path")
    return parsed


def _postgresql(url: sa.URL) -> sa.Engine:
    if find_spec("psycopg") is None:
        # Only now: it reads what the installation says of itself.
        from ratchet.extras import missing

        raise missing("postgres", "a ledger in PostgreSQL")
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=20,
        max_overflow=20,
        pool_timeout=30,
        # The connection that was used last has the most statements prepared.
        pool_use_lifo=True,
        connect_args={
            "connect_timeout": 10,
            "options": "-c idle_in_transaction_session_timeout=60000 -c timezone=UTC",
            # So that the kernel closes a connection that the network has dropped without a word.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        },
    )

    @event.listens_for(engine, "connect", insert=True)
    def refuse_bytes(driver: Any, _record: Any) -> None:
        """Before anything is read: of such a database the driver gives bytes where text is expected."""
        if driver.info.parameter_status("server_encoding") == "SQL_ASCII":
            driver.close()
            raise LedgerError(
                f"the database {shown(url.render_as_string(hide_password=False))} has the encoding SQL_ASCII, which"
                " cannot hold text of every language",
                hint="make it with `createdb --encoding UTF8 --template template0 NAME`",
            )

    @event.listens_for(engine, "checkout")
    def look(driver: Any, _record: Any, _lent: Any) -> None:
        """Take a new connection instead of one that was closed: that is seen without asking the server."""
        heard = select.poll()
        if not driver.closed:
            heard.register(driver.fileno(), select.POLLIN)
        if driver.closed or heard.poll(0):
            raise exc.DisconnectionError("the server has closed the connection")

    return engine


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, pool_size=20, max_overflow=40, pool_timeout=30, pool_use_lifo=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The driver itself begins before the first write; our own transactions begin explicitly.
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        turn_on_wal(connection, BUSY_MS / 1000)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA journal_size_limit=67108864")
        # A page that is written again and again goes to the file itself once in 32 MB of the log, not once in 4.
        connection.execute("PRAGMA wal_autocheckpoint=8000")

    return engine


def _unfit(error: BaseException) -> Misuse:
    return Misuse(f"a value does not fit into the ledger: {error}")


# Every revision in order; the last is the one this code works with.
REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
)
_MIGRATE_LOCK = 7_246_338_000


def ensure_schema(engine: sa.Engine, dead_after_seconds: Callable[[], float]) -> None:
    """Bring the database to this Ratchet's version.

    Raises `LedgerTooNew` when it is ahead, `LedgerCorrupt` when its tables are of something else, and `Conflict` while
    processes work with the tables of an older version (heard of within `dead_after_seconds`).
    """
    with engine.connect() as connection:
        version = current_revision(connection)
        if version is not None and version != REVISIONS[-1]:
            _refuse_unlike(connection)
        _refuse_newer(version, engine)
    if version == REVISIONS[-1]:
        return
    with engine.connect() as connection:
        # One process migrates, others wait here and then find it done.
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATE_LOCK})
        version = current_revision(connection)
        _refuse_newer(version, engine)
        if version is None:
            _refuse_foreign(connection)
        elif version != REVISIONS[-1]:
            _refuse_in_use(connection, version, dead_after_seconds)
        if version != REVISIONS[-1]:
            migrate(connection)
        connection.commit()


def confirm_known(engine: sa.Engine) -> None:
    """Raise `LedgerTooNew` or `LedgerCorrupt` where `ensure_schema` would; nothing is upgraded."""
    with engine.connect() as connection:
        version = current_revision(connection)
        _refuse_newer(version, engine)
        if version != REVISIONS[-1]:
            _refuse_unlike(connection)


def confirm_schema(connection: sa.Connection) -> None:
    """Raise `LedgerTooNew` if the schema was upgraded meanwhile. In a transaction that writes, no other upgrades
    it before the end."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _MIGRATE_LOCK})
    _refuse_newer(current_revision(connection), connection.engine)


def current_revision(connection: sa.Connection) -> str | None:
    """The schema version in the database; `None` when there is no schema yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _refuse_newer(version: str | None, engine: sa.Engine) -> None:
    if version is not None and version not in REVISIONS:
        raise LedgerTooNew(
            f"{_place(engine)} has schema {version}; this Ratchet knows only up to {REVISIONS[-1]}",
            hint="it was written by a newer Ratchet: upgrade this one",
        )


def _refuse_in_use(connection: sa.Connection, version: str, dead_after_seconds: Callable[[], float]) -> None:
    # Only an upgrade comes here.
    from ratchet.ledger.processes import living_processes

    living = living_processes(connection, database_now_ms(connection), dead_after_seconds())
    if living:
        raise Conflict(
            f"{_place(connection.engine)} has schema {version}, and Ratchet {__version__} would upgrade it to "
            f"{REVISIONS[-1]}, but others still work with it: {'; '.join(map(str, living))}",
            hint="stop them, then run this again: their work resumes with the new version; "
            "or use the version of Ratchet that they have",
        )


def _refuse_foreign(connection: sa.Connection) -> None:
    # Builds every table, and only a database that is not a ledger yet comes here.
    from ratchet.ledger.tables import metadata

    taken = sorted(set(sa.inspect(connection).get_table_names()) & set(metadata.tables))
    if taken:
        raise LedgerCorrupt(
            f"{_place(connection.engine)} has tables of something else in it: {', '.join(taken)}",
            hint="give Ratchet a database of its own",
        )


def _refuse_unlike(connection: sa.Connection) -> None:
    """Other programs number their schemas too, but every ledger has runs."""
    if not sa.inspect(connection).has_table("runs"):
        _refuse_foreign(connection)


def _place(engine: sa.Engine) -> str:
    return shown(engine.url.render_as_string(hide_password=False))


def migrate(connection: sa.Connection, revision: str = "head") -> None:
    """Bring the tables to a revision, in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "ratchet.ledger:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
