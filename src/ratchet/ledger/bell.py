"""The bell rings when somebody, in any process, has committed something.

Listeners then read what is new; a ring carries nothing. In this process it rings right after the commit. Other
processes hear it by LISTEN/NOTIFY on PostgreSQL. On SQLite they watch a file beside the database that each writer
touches after its commit (the write-ahead log itself changes before the commit can be seen, which is too early). Nothing
is polled where the system can tell of file changes.
"""

from __future__ import annotations

import contextlib
import logging
import select
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sa

from ratchet.ledger.database import sqlite_path
from ratchet.ledger.events import CHANNEL

_log = logging.getLogger(__name__)
# A listener looks by itself after this long, so that a ring that was lost costs time and nothing else.
SAFETY_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0
_POLL_SECONDS = 0.1


class Bell:
    """Rings listeners. The thread that hears other processes starts with the first listener and ends with the last."""

    def __init__(self, url: str) -> None:
        self._url = url
        path = sqlite_path(url)
        self._file = None if path is None else _beside(path.resolve())
        self._listeners: list[Callable[[], None]] = []
        # Guards the list of listeners and the life of the one hearing thread.
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None

    def ring(self) -> None:
        """Wake every listener, here and in other processes. On PostgreSQL the commit itself has told the others."""
        self._ring_here()
        if self._file is not None:
            with contextlib.suppress(OSError):  # the others look by themselves in a while
                self._file.touch()

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have `listener` called, from any thread, at every ring. It must return at once."""
        with self._lock:
            self._listeners.append(listener)
            if self._stop is None:
                self._stop = self._start()
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)
                if not self._listeners and self._stop is not None:
                    self._stop.set()
                    self._stop = None

    def _ring_here(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def _start(self) -> threading.Event:
        stop = threading.Event()
        hear = self._hear_postgresql if self._file is None else self._hear_file
        threading.Thread(target=hear, args=(stop, self._file), name="ratchet-bell", daemon=True).start()
        return stop

    def _hear_postgresql(self, stop: threading.Event, _file: None) -> None:
        import psycopg

        dsn = sa.make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        while not stop.is_set():
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._ring_here()  # something may have happened while nobody listened
                    while not stop.is_set():
                        for _ in connection.notifies(timeout=1.0, stop_after=1):
                            self._ring_here()
            except psycopg.Error as error:
                _log.warning("the event channel broke off (%s); connecting again", error)
                stop.wait(_RECONNECT_SECONDS)

    def _hear_file(self, stop: threading.Event, file: Path) -> None:
        if sys.platform != "linux":
            self._poll_file(stop, file)
            return
        from inotify_simple import INotify, flags

        with INotify() as watch:
            watch.add_watch(file.parent, flags.ATTRIB | flags.CREATE)
            self._ring_here()  # something may have happened before the watch was set
            while not stop.is_set():
                if select.select([watch], [], [], 1.0)[0] and any(
                    change.name == file.name for change in watch.read(timeout=0)
                ):
                    self._ring_here()

    def _poll_file(self, stop: threading.Event, file: Path) -> None:
        seen: int | None = None
        while not stop.wait(_POLL_SECONDS):
            with contextlib.suppress(FileNotFoundError):
                touched = file.stat().st_mtime_ns
                if touched != seen:
                    seen = touched
                    self._ring_here()


def _beside(path: Path) -> Path:
    return path.with_name(path.name + "-bell")
