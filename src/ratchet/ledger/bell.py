"""The bell rings when somebody, in any process, has committed something that others wait for.

A ring has a topic and carries nothing else: listeners then read what is new. In this process it rings right after the
commit. Other processes hear it by LISTEN/NOTIFY on PostgreSQL. On SQLite they watch files beside the database that
each writer touches after its commit (the write-ahead log itself changes before the commit can be seen, which is too
early). Nothing is polled where the system can tell of file changes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

import sqlalchemy as sa

from ratchet.ledger.database import sqlite_path

_log = logging.getLogger(__name__)
# A listener looks by itself after this long, so that a ring that was lost costs time and nothing else.
SAFETY_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_REST_SECONDS = 0.01


class Topic(StrEnum):
    """What one may wait for: something happened, a job can be started, a running job is to be stopped."""

    EVENTS = "events"
    JOBS = "jobs"
    STOPS = "stops"


class Bell:
    """Rings listeners. The thread that hears other processes starts with the first listener and ends with the last."""

    def __init__(self, url: str) -> None:
        self._url = url
        path = sqlite_path(url)
        self._files = None if path is None else {topic: _beside(path.resolve(), topic) for topic in Topic}
        self._listeners: list[tuple[Topic, Callable[[], None]]] = []
        # Guards the list of listeners and the life of the one hearing thread.
        self._lock = threading.Lock()
        self._stop: threading.Event | None = None

    def ring(self, topic: Topic = Topic.EVENTS) -> None:
        """Wake the listeners, here and in other processes. On PostgreSQL the commit itself has told the others."""
        self._ring_here(topic)
        if self._files is not None:
            with contextlib.suppress(OSError):  # the others look by themselves in a while
                _touch(self._files[topic])

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None], topic: Topic = Topic.EVENTS) -> Iterator[None]:
        """Have `listener` called, from any thread, at every ring. It must return at once."""
        with self._lock:
            self._listeners.append((topic, listener))
            if self._stop is None:
                self._stop = self._start()
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove((topic, listener))
                if not self._listeners and self._stop is not None:
                    self._stop.set()
                    self._stop = None

    def _ring_here(self, *topics: Topic) -> None:
        with self._lock:
            listeners = [listener for topic, listener in self._listeners if topic in topics]
        for listener in listeners:
            listener()

    def _start(self) -> threading.Event:
        stop = threading.Event()
        hear = self._hear_postgresql if self._files is None else self._hear_files
        threading.Thread(target=hear, args=(stop, self._files), name="ratchet-bell", daemon=True).start()
        return stop

    def _hear_postgresql(self, stop: threading.Event, _files: None) -> None:
        import psycopg

        dsn = sa.make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        topics = {channel(topic): topic for topic in Topic}
        while not stop.is_set():
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:
                    for name in topics:
                        connection.execute(f"LISTEN {name}")
                    self._ring_here(*Topic)  # something may have happened while nobody listened
                    while not stop.is_set():
                        for notice in connection.notifies(timeout=1.0, stop_after=1):
                            self._ring_here(topics[notice.channel])
            except psycopg.Error as error:
                _log.warning("the event channel broke off (%s); connecting again", error)
                stop.wait(_RECONNECT_SECONDS)

    def _hear_files(self, stop: threading.Event, files: dict[Topic, Path]) -> None:
        if sys.platform != "linux":
            self._poll_files(stop, files)
            return
        from inotify_simple import INotify, flags

        topics = {file.name: topic for topic, file in files.items()}
        with INotify() as watch:
            watch.add_watch(files[Topic.EVENTS].parent, flags.ATTRIB | flags.CREATE)
            self._ring_here(*Topic)  # something may have happened before the watch was set
            while not stop.is_set():
                if select.select([watch], [], [], 1.0)[0]:
                    touched = {change.name for change in watch.read(timeout=0)}
                    self._ring_here(*(topics[name] for name in touched & topics.keys()))
                    # Those of a moment are heard together: this process touches the files, too.
                    stop.wait(_REST_SECONDS)

    def _poll_files(self, stop: threading.Event, files: dict[Topic, Path]) -> None:
        seen: dict[Topic, int] = {}
        while not stop.wait(_POLL_SECONDS):
            for topic, file in files.items():
                with contextlib.suppress(FileNotFoundError):
                    touched = file.stat().st_mtime_ns
                    if touched != seen.get(topic):
                        seen[topic] = touched
                        self._ring_here(topic)


def channel(topic: Topic) -> str:
    """The name of a topic's PostgreSQL channel."""
    return f"ratchet_{topic}"


def _touch(file: Path) -> None:
    try:
        os.utime(file)
    except FileNotFoundError:
        file.touch()


def _beside(path: Path, topic: Topic) -> Path:
    return path.with_name(f"{path.name}-bell-{topic}")
