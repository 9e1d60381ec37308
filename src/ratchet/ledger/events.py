"""Events: what happened, in order, for ever; and the bell that rings when something was committed.

The number of an event is the order of the world: a reader that has seen number N has seen everything below it. On
PostgreSQL numbers are given out before commits, so writers take one lock just before they append; it is held for the
commit only, which NOTIFY serialises anyway.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import EventId
from ratchet.ledger.database import sqlite_path
from ratchet.ledger.tables import events, runs

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
        try:
            self._watch_files(stop, files)
        except OSError as error:
            # The user has no instances or watches of inotify left: it is slower without, and works.
            _log.warning("changes are looked for, not watched: %s", error)
            self._ring_here(*Topic)
            self._poll_files(stop, files)

    def _watch_files(self, stop: threading.Event, files: dict[Topic, Path]) -> None:
        from inotify_simple import INotify, flags

        topics = {file.name: topic for topic, file in files.items()}
        with contextlib.ExitStack() as stack:
            try:
                watch = stack.enter_context(INotify())
                watch.add_watch(files[Topic.EVENTS].parent, flags.ATTRIB | flags.CREATE)
            except OSError as error:
                _log.warning("this user is out of inotify watches (%s); looking every moment instead", error)
                self._poll_files(stop, files)
                return
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


# Any number will do, as long as nothing else in the database locks it.
_APPEND_LOCK = 7_246_338_001
# With the notice, which other processes get with the commit, in one round trip.
_LOCK = sa.text(f"SELECT pg_advisory_xact_lock({_APPEND_LOCK}), pg_notify('{channel(Topic.EVENTS)}', '')")
# An event of a run is one of the run's project, whoever wrote it: what a project may see is one range of an index.
_APPEND = sa.insert(events).values(
    project_id=sa.func.coalesce(
        sa.bindparam("named_project", type_=events.c.project_id.type),
        sa.select(runs.c.project_id).where(runs.c.id == sa.bindparam("of_run")).scalar_subquery(),
    ),
    data=sa.bindparam("json", type_=sa.Text),
)


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the ledger."""

    id: EventId
    at: int
    type: str
    actor: str
    request_id: str | None = None
    project_id: int | None = None
    run_id: int | None = None
    step_id: int | None = None
    attempt_id: int | None = None
    job_id: int | None = None
    message: str | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to read; a field that is `None` does not restrict.

    `type` ending in `.`, `.*` or `_*` means every type that starts so: `run.*`, `setup_*`.
    """

    project_id: int | None = None
    run_id: int | None = None
    step_id: int | None = None
    attempt_id: int | None = None
    job_id: int | None = None
    type: str | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        of_one: list[sa.ColumnElement[bool]] = [
            events.c[name] == value
            for name in ("project_id", "run_id", "step_id", "attempt_id", "job_id")
            if (value := getattr(self, name)) is not None
        ]
        if self.type is None:
            return of_one
        # The events of one thing are fewer than those of one type: hide the type, so that the other index is taken.
        type_ = events.c.type.concat("") if of_one else events.c.type
        if self.family is None:
            return [*of_one, type_ == self.type]
        return [*of_one, type_ >= self.family, type_ < _end(self.family)]

    @property
    def family(self) -> str | None:
        """What every wanted type starts with, when `type` names a family."""
        wanted = self.type or ""
        return wanted.removesuffix("*") if wanted.endswith((".", ".*", "_*")) else None

    @property
    def only_family(self) -> bool:
        return self.family is not None and self == EventFilter(type=self.type)


def append(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append `rows` as one batch, and tell other processes; the caller's transaction must end right after.

    Each has the columns of an event, but its project as `named_project`, its run also as `of_run`, and its data as the
    text `json`.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    connection.execute(_APPEND, rows)


def since(
    connection: sa.Connection, after: int = 0, *, where: EventFilter | None = None, limit: int = 500
) -> list[Event]:
    """The oldest `limit` events with a number above `after`."""
    return _page(connection, where or EventFilter(), [events.c.id > after], limit=limit)


def latest(
    connection: sa.Connection, *, before: int | None = None, where: EventFilter | None = None, limit: int = 50
) -> list[Event]:
    """The newest `limit` events, newest first, below the number `before`."""
    bounds = [] if before is None else [events.c.id < before]
    return _page(connection, where or EventFilter(), bounds, limit=limit, newest_first=True)


def last_id(connection: sa.Connection) -> int:
    """The number of the newest event; 0 when there is none."""
    return connection.execute(sa.select(sa.func.max(events.c.id))).scalar() or 0


def _page(
    connection: sa.Connection,
    where: EventFilter,
    bounds: list[sa.ColumnElement[bool]],
    *,
    limit: int,
    newest_first: bool = False,
) -> list[Event]:
    def page(source: sa.Table | sa.Subquery, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        order = source.c.id.desc() if newest_first else source.c.id.asc()
        return sa.select(source).where(*conditions).order_by(order).limit(limit)

    if where.family is None or not where.only_family:
        return _read(connection, page(events, *bounds, *where.conditions()))
    # The index has one type after the other, so a family as a whole would have to be sorted. A page of each of its few
    # types, merged, costs the same however long the history is.
    pages = [
        sa.select(page(events, events.c.type == each, *bounds).subquery())
        for each in _types(connection, where.family)
    ]
    return _read(connection, page(sa.union_all(*pages).subquery())) if pages else []


def _types(connection: sa.Connection, family: str) -> list[str]:
    """The types that start with `family`, each found by one look into the index."""
    found: list[str] = []
    lower = events.c.type >= family
    while True:
        least = sa.select(sa.func.min(events.c.type)).where(lower, events.c.type < _end(family))
        next_type = connection.execute(least).scalar()
        if next_type is None:
            return found
        found.append(next_type)
        lower = events.c.type > next_type


def _end(family: str) -> str:
    """The first text after every one that starts with `family`."""
    return family[:-1] + chr(ord(family[-1]) + 1)


def _read(connection: sa.Connection, query: sa.Select[Any]) -> list[Event]:
    return [Event(**row) for row in connection.execute(query).mappings()]
