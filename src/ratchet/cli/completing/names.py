"""Names and numbers in a ledger, read without the library that all else reads it with: that takes too long to import.

Only looks: nothing is made, no schema is moved, nobody is waited for. Whatever goes wrong, there are no names.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.cli.completing.place import Place

_SECONDS = 0.1
_SECONDS_TO_CONNECT = 2

_NEWEST = "ORDER BY id DESC LIMIT 100"
_BY_NAME = "ORDER BY name LIMIT 1000"
_IDS_AND_NAMES = (
    "SELECT CAST(id AS TEXT), name || ' ' || status FROM ({0}) AS numbered "
    "UNION ALL SELECT name, status || ' ' || CAST(id AS TEXT) FROM ({0}) AS named"
)
_PROTOCOLS = (
    "SELECT runs.id AS id, protocols.name AS name, runs.status AS status FROM protocols "
    "JOIN runs ON runs.id = protocols.run_id ORDER BY runs.id DESC LIMIT 100"
)
_RESEARCH = f"SELECT id, name, status FROM runs WHERE kind = 'research' {_NEWEST}"
_PROJECTS = f"SELECT id, name, base_branch AS status FROM projects WHERE archived_at IS NULL {_BY_NAME}"

QUERIES: Mapping[str, str] = {
    "AGENT": f"SELECT name, description FROM agents WHERE status <> 'deleted' {_BY_NAME}",
    "APPROVAL": f"SELECT id, subject FROM approvals WHERE status = 'pending' {_NEWEST}",
    "JOB": f"SELECT id, kind || ' ' || status FROM jobs {_NEWEST}",
    "PROJECT": _IDS_AND_NAMES.format(_PROJECTS),
    "PROTOCOL": _IDS_AND_NAMES.format(_PROTOCOLS),
    "QUEUE": f"SELECT name, '' FROM job_queues {_BY_NAME}",
    "RESEARCH": _IDS_AND_NAMES.format(_RESEARCH),
    "RUN": f"SELECT id, kind || ' ' || name || ' ' || status FROM runs {_NEWEST}",
    "SCHEDULE": f"SELECT name, cron FROM schedules {_BY_NAME}",
    "STEP": (
        "SELECT steps.id, steps.name || ' ' || steps.status FROM protocol_steps "
        "JOIN steps ON steps.id = protocol_steps.step_id ORDER BY steps.id DESC LIMIT 100"
    ),
    "TOOL": f"SELECT name, source FROM tools WHERE NOT removed AND folder = '' {_BY_NAME}",
    "WORKFLOW": f"SELECT DISTINCT name, '' FROM workflows WHERE NOT removed {_BY_NAME}",
}
"""What is asked for each word: a name or a number, and what helps to tell it from others."""


def names_in(place: Place, word: str) -> Mapping[str, str]:
    """The names that `word` may stand for, with what is said of each. None when the ledger cannot be read now."""
    with contextlib.suppress(Exception):
        return {str(name): str(about or "") for name, about in rows(place, QUERIES[word])}
    return {}


def rows(place: Place, query: str) -> Sequence[tuple[object, object]]:
    """What the ledger answers. Raises whatever its driver raises."""
    return _from_server(place.database_url, query) if place.path is None else _from_file(place.path, query)


def _from_file(path: Path, query: str) -> Sequence[tuple[object, object]]:
    # Opened for writing, though nothing is written: only then are the files beside it removed again.
    with contextlib.closing(
        sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_SECONDS)
    ) as database:
        database.execute("PRAGMA query_only = ON")
        return database.execute(query).fetchall()


def _from_server(url: str, query: str) -> Sequence[tuple[object, object]]:
    import psycopg

    patience = f"-c statement_timeout={int(_SECONDS * 1000)} -c default_transaction_read_only=on"
    with psycopg.connect(url, connect_timeout=_SECONDS_TO_CONNECT, options=patience) as connection:
        return connection.execute(query).fetchall()
