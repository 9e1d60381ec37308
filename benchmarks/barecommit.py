"""The floor: one small row and a commit that reaches the disk, with nothing in between."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Protocol

import psycopg

_TABLE = "CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT)"
_TABLE_POSTGRESQL = "CREATE TABLE bare (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT)"
_TEXT = "x" * 200


class BareCommit(Protocol):
    def seconds(self) -> float:
        """Insert a row, commit it, and say how long that took."""


class SqliteCommit:
    """WAL with `synchronous=FULL`, as the ledger has it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(_TABLE)
        self._connection.commit()

    def seconds(self) -> float:
        began = time.perf_counter()
        self._connection.execute("INSERT INTO bare (text) VALUES (?)", (_TEXT,))
        self._connection.commit()
        return time.perf_counter() - began


class PostgresCommit:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url)
        self._connection.execute(_TABLE_POSTGRESQL)
        self._connection.commit()

    def seconds(self) -> float:
        began = time.perf_counter()
        self._connection.execute("INSERT INTO bare (text) VALUES (%s)", (_TEXT,))
        self._connection.commit()
        return time.perf_counter() - began


def bare_commit(url: str, directory: Path) -> BareCommit:
    """A loop on the same server as the ledger at `url`, or in a file beside it."""
    return SqliteCommit(directory / "bare.db") if url.startswith("sqlite") else PostgresCommit(url)
