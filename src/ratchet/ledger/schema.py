"""Making and upgrading the tables.

Alembic does the work, but takes a third of a second to import: it is loaded only when the version in the database is
not the one this Ratchet knows.
"""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.kernel import LedgerCorrupt, LedgerTooNew
from ratchet.ledger.database import shown

# Every revision in order; the last is the one this code works with.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
_MIGRATE_LOCK = 7_246_338_000


def ensure_schema(engine: sa.Engine) -> None:
    """Bring the database to this Ratchet's version.

    Raises `LedgerTooNew` when it is ahead, and `LedgerCorrupt` when its tables are of something else.
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
        if version != REVISIONS[-1]:
            _migrate(connection)
        connection.commit()


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


def _migrate(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "ratchet.ledger:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
