"""The ledger: one database and the files beside it, and following its events and logs live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sqlalchemy import exc

from ratchet.files import opened, try_lock
from ratchet.kernel import ConfigError, Conflict, LedgerCorrupt, LedgerUnavailable, iso, sendable, shortened
from ratchet.ledger import events
from ratchet.ledger.artifacts import ArtifactStore
from ratchet.ledger.database import (
    begin_reading,
    begin_writing,
    confirm_known,
    database_now_ms,
    ensure_schema,
    make_engine,
    now_ms,
    refuse_failed,
    sqlite_path,
    translated,
)
from ratchet.ledger.events import SAFETY_SECONDS, Bell, Event, EventFilter, last_id, latest, since
from ratchet.ledger.runs import Run, get_attempt, get_run
from ratchet.ledger.transaction import Remembered, Transaction

if TYPE_CHECKING:
    from ratchet.config import Loaded
    from ratchet.ledger.bucket import Bucket

# By so much, clocks that are right may differ.
_SKEW_MS = 1000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Ledger:
    """Reads and writes in transactions. Safe to share between threads; open one per process."""

    def __init__(self, url: str, artifacts: Path, bucket: Bucket | None = None) -> None:
        self.url = url
        self.path = sqlite_path(url)
        self.engine = make_engine(url)
        self.artifacts = ArtifactStore(artifacts, self.read, bucket)
        self.bell = Bell(url)
        self._remembered = Remembered()
        # A time of the database, and the milliseconds of this process's own count at that moment.
        self._clock: tuple[int, int] | None = None

    @classmethod
    def open(
        cls,
        url: str,
        artifacts: Path,
        *,
        bucket: Bucket | None = None,
        dead_after_seconds: Callable[[], float] = lambda: 60.0,
        restoring: bool = False,
        upgrade: bool = True,
    ) -> Ledger:
        """Open the ledger at `url`, making or upgrading it as needed, unless `upgrade` is not wanted.

        With a `bucket` its large artifacts are there, and `artifacts` has those that this machine uses.

        Raises `LedgerCorrupt`, `LedgerTooNew` or `LedgerUnavailable`, and `Conflict` where it would have to be upgraded
        while processes of an older version work on it (heard of within `dead_after_seconds`); each says what to do. One
        that is half restored is opened only for `restoring` it.
        """
        if not restoring:
            refuse_half_restored(artifacts.parent)
        ledger = cls(url, artifacts, bucket)
        if ledger.path is not None:
            with contextlib.suppress(OSError):  # an unwritable place is explained by the database's own error
                ledger.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _close_to_others(ledger.path)
        try:
            with translated(url):
                if upgrade:
                    ensure_schema(ledger.engine, dead_after_seconds)
                else:
                    confirm_known(ledger.engine)
                ledger.set_clock()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @contextlib.contextmanager
    def write(self, *, actor: str = "ratchet", request_id: str | None = None) -> Iterator[Transaction]:
        """A transaction that may write. It commits when the block ends and rolls back when the block raises.

        Everybody sees it then, whatever dies, and it outlasts a power cut.
        """
        with translated(self.url), self.engine.connect() as connection:
            begin_writing(connection)
            tx = Transaction(
                connection,
                self.artifacts,
                self._remembered,
                actor=actor,
                request_id=request_id,
                now=self.now_ms(),
            )
            try:
                yield tx
                appended = tx.flush()
                refuse_failed(connection)
                connection.commit()
            except BaseException:
                with contextlib.suppress(exc.DBAPIError):  # the first error is the one to tell
                    connection.rollback()
                raise
        _count(appended)
        for topic in tx.topics:
            self.bell.ring(topic)
        tx.run_after_commit()

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that sees one moment of the ledger and writes nothing."""
        with translated(self.url), self.engine.connect() as connection:
            begin_reading(connection)
            yield Transaction(
                connection,
                self.artifacts,
                self._remembered,
                actor="reader",
                request_id=None,
                now=self.now_ms(),
            )
            # Not rolled back: the driver would forget the statements that it has prepared.
            connection.commit()

    def now_ms(self) -> int:
        """The time by which everything in the ledger is dated, in milliseconds since 1970.

        Where machines share a database it is that of the database: one whose clock is wrong does nothing early.
        """
        ours = now_ms()
        if self._clock is None:
            return ours
        theirs = self._clock[0] + _monotonic_ms() - self._clock[1]
        return ours if abs(ours - theirs) <= _SKEW_MS else theirs

    def set_clock(self) -> None:
        """Ask the database what time it is; with SQLite it is the time of this machine."""
        if self.path is not None:
            return
        began = _monotonic_ms()
        with translated(self.url), self.engine.connect() as connection:
            theirs = database_now_ms(connection)
        self._clock = theirs, (began + _monotonic_ms()) // 2

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def open_ledger(loaded: Loaded, *, restoring: bool = False, upgrade: bool = True) -> Ledger:
    """The ledger that the settings name. To read it takes no runtime."""
    loaded.close_to_others()
    return Ledger.open(
        loaded.settings.database_url.reveal(),
        loaded.home / "artifacts",
        bucket=_bucket(loaded),
        # Asked for only by an upgrade: to read it loads more than most commands need.
        dead_after_seconds=lambda: loaded.settings.runtime.dead_after_seconds,
        restoring=restoring,
        upgrade=upgrade,
    )


def _bucket(loaded: Loaded) -> Bucket | None:
    # Not read where nobody set it, for the same reason.
    url = loaded.settings.artifacts.url if loaded.is_set("artifacts.url") else None
    if url is None:
        return None
    if loaded.settings.database_url.path is not None:
        raise ConfigError(
            f"artifacts.url is {url}, but the ledger is a SQLite file of this machine",
            hint="an artifact store is for machines that share a ledger: set database_url to postgresql://…",
        )
    from ratchet.ledger.bucket import Bucket

    return Bucket(url)


def _close_to_others(path: Path) -> None:
    """Let only this user read the database, whatever the umask. The files beside it get its mode when they are made."""
    # Only one that is new is opened here: closing it would drop the locks that this process has on the database.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _count(events: int) -> None:
    # Loaded here: most commands only read.
    from ratchet.observe import metrics

    metrics.events_appended.inc(events)


_log = logging.getLogger(__name__)
_BATCH = 500
RETRY_SECONDS = 1.0


def follow(
    ledger: Ledger,
    after: int,
    *,
    where: EventFilter | None = None,
    stop: threading.Event | None = None,
    safety_seconds: float = SAFETY_SECONDS,
) -> Iterator[Event]:
    """Yield events above `after` for ever, or until `stop` is set (it is noticed at the next ring or second).

    Each ring wakes it; it also looks every `safety_seconds`, since a ring may be lost with a connection.
    """
    rung = threading.Event()
    with ledger.bell.listening(rung.set):
        while stop is None or not stop.is_set():
            rung.clear()
            batch = _new(ledger, after, where)
            for event in batch or []:
                after = event.id
                yield event
            if batch is None:
                rung.wait(RETRY_SECONDS)
            elif len(batch) < _BATCH:
                rung.wait(safety_seconds if stop is None else min(1.0, safety_seconds))


async def follow_async(
    ledger: Ledger, after: int, *, where: EventFilter | None = None, stop: asyncio.Event | None = None
) -> AsyncGenerator[Event, None]:
    """Like `follow`, without a thread of its own; ring the bell after setting `stop`, or cancel the task."""
    with rings(ledger) as rung:
        while stop is None or not stop.is_set():
            rung.clear()
            batch = await asyncio.to_thread(_new, ledger, after, where)
            for event in batch or []:
                after = event.id
                yield event
                if stop is not None and stop.is_set():
                    return
            if batch is None or len(batch) < _BATCH:
                await wait_for_ring(rung, RETRY_SECONDS if batch is None else SAFETY_SECONDS)


@contextlib.contextmanager
def rings(ledger: Ledger) -> Iterator[asyncio.Event]:
    """An event of this loop that is set whenever something was written."""
    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def ring() -> None:
        # The loop may have closed between the ring and this call; then nobody is left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(rung.set)

    with ledger.bell.listening(ring):
        yield rung


async def wait_for_ring(rung: asyncio.Event, seconds: float) -> None:
    """Until the next ring, or so long: one may be lost with a connection."""
    # Not `wait_for`: that forgets a cancellation which comes together with a ring.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await rung.wait()


def _new(ledger: Ledger, after: int, where: EventFilter | None) -> list[Event] | None:
    """What is new; `None` when the database cannot be read for now."""
    try:
        with ledger.read() as tx:
            return events.since(tx.connection, after, where=where, limit=_BATCH)
    except LedgerUnavailable as error:
        _log.warning("cannot follow for now, trying again: %s", error)
        return None


async def run_at_rest(ledger: Ledger, run_id: int, seconds: float) -> Run:
    """The run once it has ended, is paused or blocked; after so many seconds as it is then."""
    after, run = await asyncio.to_thread(_now, ledger, run_id)
    if run.status.stands or not seconds:
        return run
    changes = follow_async(ledger, after, where=EventFilter(run_id=run_id, type="run.*"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), contextlib.aclosing(changes):
            async for _ in changes:
                _, run = await asyncio.to_thread(_now, ledger, run_id)
                if run.status.stands:
                    return run
    return run


def _now(ledger: Ledger, run_id: int) -> tuple[int, Run]:
    with ledger.read() as tx:
        return last_id(tx.connection), get_run(tx, run_id)


_PAGE = 200
_LONGEST_DATA = 2000


@dataclass(frozen=True, slots=True)
class LogPart:
    """`next_offset` is where the next part begins; `ended` says that there will be none."""

    chunk: str = field(metadata={"description": "whole lines"})
    next_offset: int = field(metadata={"description": "pass it as `offset` for the next part"})
    ended: bool = field(metadata={"description": "whether the attempt has ended and this was the last of it"})


def read_log(tx: Transaction, attempt_id: int, *, offset: int = 0, max_bytes: int) -> LogPart:
    """Whole lines after `offset`, at most `max_bytes` of them but at least one. Raises `NotFound`."""
    ended = get_attempt(tx, attempt_id).ended_at is not None
    lines: list[str] = []
    size = 0
    for event in _events(tx, attempt_id, offset):
        line = log_line(event)
        size += len(line.encode("utf-8", "replace"))
        if lines and size > max_bytes:
            return LogPart("".join(lines), offset, ended=False)
        lines.append(line)
        offset = event.id
    return LogPart("".join(lines), offset, ended)


def tail_log(tx: Transaction, attempt_id: int, *, most: int) -> str:
    """The end of a log: at most so many of its events, oldest first."""
    found = latest(tx.connection, where=EventFilter(attempt_id=attempt_id), limit=most)
    return "".join(log_line(event) for event in reversed(found))


async def follow_log(
    ledger: Ledger, attempt_id: int, offset: int, *, stop: asyncio.Event
) -> AsyncGenerator[Event, None]:
    """The events of an attempt above `offset` as they happen, until it has ended and all were told, or `stop` is set.

    A database that goes away is waited for. Raises `NotFound`.
    """
    with rings(ledger) as rung:
        while not stop.is_set():
            rung.clear()
            looked = await asyncio.to_thread(_look, ledger, attempt_id, offset)
            if looked is None:
                await wait_for_ring(rung, RETRY_SECONDS)
                continue
            page, ended = looked
            for event in page:
                offset = event.id
                yield event
            if len(page) < _PAGE:
                if ended:
                    return
                await wait_for_ring(rung, SAFETY_SECONDS)


def log_line(event: Event) -> str:
    """An event as a line; what is said on several lines stays so."""
    told = [event.type.removeprefix("session."), *([event.message] if event.message else [])]
    if event.data and event.type.startswith("session."):
        data = json.dumps(event.data, ensure_ascii=False)
        told.append(shortened(data, _LONGEST_DATA))
    line = f"{iso(event.at)} {' '.join(told)}\n"
    return sendable(line)


def _look(ledger: Ledger, attempt_id: int, after: int) -> tuple[list[Event], bool] | None:
    """The next events, and whether there will be no more behind them; nothing while the database cannot be read."""
    try:
        with ledger.read() as tx:
            ended = get_attempt(tx, attempt_id).ended_at is not None
            return since(tx.connection, after, where=EventFilter(attempt_id=attempt_id), limit=_PAGE), ended
    except LedgerUnavailable as error:
        _log.warning("cannot follow a log for now, trying again: %s", error)
        return None


def _events(tx: Transaction, attempt_id: int, after: int) -> Iterator[Event]:
    where = EventFilter(attempt_id=attempt_id)
    while page := since(tx.connection, after, where=where, limit=_PAGE):
        yield from page
        after = page[-1].id


RESTORE_MARK = "half-restored"
"""A file of a home in which a restore has begun and not ended. It says with which command it is finished."""


def refuse_half_restored(home: Path) -> None:
    """Raise `LedgerCorrupt` if a restore into the home has died halfway, and `Conflict` while it is under way."""
    mark = home / RESTORE_MARK
    try:
        finish = mark.read_text()
    except OSError:
        return
    with opened(home) as lock:
        if not try_lock(lock, shared=True):
            raise Conflict(f"{home} is being restored: `{finish}`", hint="wait for it to end")
    raise LedgerCorrupt(
        f"{home} is half restored: its rows and its files may be of two different times",
        hint=f"finish it: `{finish}`; without that backup, delete {mark} and run `ratchet ledger check`",
    )
