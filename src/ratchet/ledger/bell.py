"""The bell rings when somebody, in any process, has committed something.

Listeners then read what is new; a ring carries nothing. In this process it rings right after the commit. From other
processes it rings by LISTEN/NOTIFY on PostgreSQL, and by a change of the write-ahead log's file on SQLite: nothing
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
        self._listeners: list[Callable[[], None]] = []
        # Guards the list of listeners and the life of the one hearing thread.
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None

    def ring(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

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

    def _start(self) -> threading.Event:
        stop = threading.Event()
        path = sqlite_path(self._url)
        hear = self._hear_postgresql if path is None else self._hear_file
        threading.Thread(target=hear, args=(stop, path), name="ratchet-bell", daemon=True).start()
        return stop

    def _hear_postgresql(self, stop: threading.Event, _path: None) -> None:
        import psycopg

        dsn = sa.make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        while not stop.is_set():
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self.ring()  # something may have happened while nobody listened
                    while not stop.is_set():
                        for _ in connection.notifies(timeout=1.0, stop_after=1):
                            self.ring()
            except psycopg.Error as error:
                _log.warning("the event channel broke off (%s); connecting again", error)
                stop.wait(_RECONNECT_SECONDS)

    def _hear_file(self, stop: threading.Event, path: Path) -> None:
        if sys.platform != "linux":
            self._poll_file(stop, path)
            return
        from inotify_simple import INotify, flags

        with INotify() as watch:
            watch.add_watch(path.parent, flags.MODIFY | flags.CREATE)
            while not stop.is_set():
                if select.select([watch], [], [], 1.0)[0] and any(
                    change.name.startswith(path.name) for change in watch.read(timeout=0)
                ):
                    self.ring()

    def _poll_file(self, stop: threading.Event, path: Path) -> None:
        log = path.with_name(path.name + "-wal")
        seen: tuple[int, int] | None = None
        while not stop.wait(_POLL_SECONDS):
            with contextlib.suppress(FileNotFoundError):
                stat = log.stat()
                if (stat.st_mtime_ns, stat.st_size) != seen:
                    seen = (stat.st_mtime_ns, stat.st_size)
                    self.ring()
