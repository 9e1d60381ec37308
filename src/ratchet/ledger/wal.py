"""SQLite's write-ahead log, turned on while others may be doing the same."""

from __future__ import annotations

import sqlite3
import time

_PAUSE_SECONDS = 0.01


def turn_on_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """SQLite does not wait by itself when another process is just turning it on; this waits for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
