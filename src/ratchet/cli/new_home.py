"""What becomes of a home that a command has made by being called: it stays if something was recorded in it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

# What opening a ledger, asking for the token and looking at an engine leave behind.
_TRACES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "token")


def settle_new_home(home: Path, *, failed: bool) -> None:
    """Remove a home in which a command that `failed` has recorded nothing: it would be that of all that is below it.

    One that stays is hidden from Git, since it may lie in a repository and has secrets in it.
    """
    if not home.is_dir():
        return
    if failed and _is_empty(home):
        shutil.rmtree(home, ignore_errors=True)
        return
    from ratchet.config.file import hide_from_git

    with contextlib.suppress(OSError):
        hide_from_git(home)


def _is_empty(home: Path) -> bool:
    files = [path for path in home.rglob("*") if not path.is_dir() or path.is_symlink()]
    if any(path.parent != home or path.name not in _TRACES for path in files):
        return False
    return not (home / "ledger.db").exists() or not _has_events(home / "ledger.db")


def _has_events(ledger: Path) -> bool:
    """Whether anything was recorded. A file that cannot be read may hold something."""
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM events LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True
