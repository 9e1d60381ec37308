"""What a session says: written to the ledger while it runs, recorded at its end, and read page by page.

A transcript may be long and its lines too, so a page ends after a number of entries or of characters, whichever comes
first. Lines before the page are looked at, not parsed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

from ratchet.engines.engine import EventKind, Session, SessionEvent, SessionFailed
from ratchet.kernel import LedgerUnavailable, Usage, decoded
from ratchet.ledger import ArtifactStore, Budgets, Ledger, Spender, Transaction
from ratchet.ledger.runs import mark_simulated
from ratchet.ledger.usage import add_session, charge, was_charged
from ratchet.observe.logs import logger
from ratchet.runtime import JobContext, configured_budgets

_log = logger(__name__)

T = TypeVar("T")
_EVERY_SECONDS = 0.5
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Account:
    """On whose account a session runs, and who writes it down."""

    ledger: Ledger
    actor: str
    spender: Spender
    budgets: Budgets
    engine: str
    model: str | None = None


class Book(Protocol):
    """Where the end of a session is written: the job that held it, or a ledger."""

    def write(self) -> AbstractContextManager[Transaction]: ...


class SessionWriter(Protocol):
    """Does work in a transaction: one of its own, or one that others share."""

    async def __call__(self, work: Callable[[Transaction], T], /) -> T: ...


def write_now(book: Book) -> SessionWriter:
    """A transaction of `book`, in the event loop's own thread."""

    async def write(work: Callable[[Transaction], T]) -> T:
        with book.write() as tx:
            return work(tx)

    return write


def write_in_thread(book: Book) -> SessionWriter:
    """A transaction of `book` in another thread, for an event loop that has others to serve."""

    def write_it(work: Callable[[Transaction], T]) -> T:
        with book.write() as tx:
            return work(tx)

    async def write(work: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(write_it, work)

    return write


@dataclass(frozen=True, slots=True)
class _Written:
    """What one transaction has of a session: so many events, and the rest of all that it had used by then."""

    at: int
    owed: Usage
    events: int
    reported: Usage


class SessionListener:
    """Takes a session's events, and knows how much of its usage is charged already."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._waiting: list[SessionEvent] = []
        self._reported = Usage()
        self._charged = Usage()
        self._engine, self._model = account.engine, account.model
        # When what was written last, and how much of it was usage, until its commit is confirmed.
        self._unconfirmed: _Written | None = None

    @property
    def used(self) -> Usage:
        """What the session has used, as far as it reported."""
        return self._reported

    def hear(self, event: SessionEvent) -> None:
        if event.kind is EventKind.USAGE:
            self._reported = _usage_of(event).largest(self._reported)
            self.learn(event.data.get("engine"), event.data.get("model"))
        if self._waiting and _is_continued_by(self._waiting[-1], event):
            event = SessionEvent(event.kind, self._waiting.pop().text + event.text, event.data)
        self._waiting.append(event)

    def learn(self, engine: str | None, model: str | None) -> None:
        """Charge from now on what is known to have worked: a judge asks an engine, and an engine chooses a model."""
        self._engine, self._model = engine or self._engine, model or self._model

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Write what is heard until the block ends. What comes last waits for `record`, or is written if it fails."""
        self._ring()
        try:
            yield
        except BaseException:
            self._flush()
            raise
        finally:
            self._timer.cancel()

    async def record(self, write: SessionWriter, used: Usage, work: Callable[[Transaction], T]) -> T:
        """Do `work` in a transaction that also writes the rest and charges what the whole session used.

        When the transaction fails, because the job belongs to another process by now or for any other reason, that is
        still written: what was used was used.
        """
        self._reported = used.largest(self._reported)

        def everything(tx: Transaction) -> T:
            self._write(tx)
            return work(tx)

        try:
            return await write(everything)
        except BaseException:
            self._flush()
            raise

    def _ring(self) -> None:
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_EVERY_SECONDS, self._ring)

    def _flush(self) -> None:
        if not self._waiting and self._reported == self._charged:
            return
        try:
            with self._account.ledger.write(actor=self._account.actor) as tx:
                self._write(tx)
        except LedgerUnavailable as error:
            # Kept for the next time; the session itself must not suffer.
            _log.warning("what a session says cannot be written now", error=str(error))

    def _write(self, tx: Transaction) -> None:
        """Write what waits. It counts as written when the transaction is committed, not before.

        Of one before that failed it is looked up: the database may have had it when the connection broke.
        """
        account, last = self._account, self._unconfirmed
        if last is not None and was_charged(tx, account.spender, last.owed, at=last.at):
            self._written(last)
        count, reported = len(self._waiting), self._reported
        for event in self._waiting[:count]:
            tx.event(
                f"session.{event.kind}",
                run_id=account.spender.run_id,
                attempt_id=account.spender.attempt_id,
                project_id=account.spender.project_id,
                message=event.text[:_LONGEST] or None,
                data=dict(event.data) or None,
            )
        owed = reported.less(self._charged)
        if owed != Usage():
            charge(tx, account.spender, owed, account.budgets, engine=self._engine, model=self._model)
        written = self._unconfirmed = _Written(tx.now, owed, count, reported)
        tx.after_commit(lambda: self._written(written))

    def _written(self, what: _Written) -> None:
        del self._waiting[: what.events]
        self._charged = what.reported
        self._unconfirmed = None


def account_of(job: JobContext, spender: Spender, engine: str, model: str | None = None) -> Account:
    """The account of a session that a job holds for `spender`."""
    budgets = configured_budgets(job.runtime.settings)
    return Account(job.ledger, job.process_id, spender, budgets, engine, model)


def _is_continued_by(last: SessionEvent, event: SessionEvent) -> bool:
    """Whether a text that comes in pieces continues; a piece that is not the last one has `more`."""
    return bool(last.data.get("more")) and last.kind is event.kind


def _usage_of(event: SessionEvent) -> Usage:
    """What a session says it has used so far, all of it."""
    names = {each.name for each in fields(Usage)}
    return Usage(**{name: value for name, value in event.data.items() if name in names})


_MOST_CHARACTERS = 400_000
_USAGE_MARK = f'"kind": "{EventKind.USAGE}"'.encode()


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """What was said at once, from line `number` to line `last`. `ms` is when, counted from the session's beginning.

    `turn` is what was used since the session last reported its usage, where this entry reports it.
    """

    number: int
    last: int
    ms: int
    kind: str
    text: str
    data: Any
    turn: Usage | None = None


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """`next` is the line to continue after. `matches` says how many entries of the whole fit what was sought."""

    entries: list[TranscriptEntry]
    next: int | None
    lines: int
    matches: int | None = None


def read_transcript(
    lines: Iterable[bytes], *, after: int = 0, limit: int = 100, search: str | None = None
) -> TranscriptPage:
    """The entries behind line `after`; with `search` only those that contain it, in capitals or not.

    A line that is no entry is shown as a note: what was recorded is shown as it is.
    """
    reading = _Reading(after, limit, search)
    for number, line in enumerate(lines, start=1):
        reading.read(number, line)
    return reading.page()


class _Reading:
    """One pass over a transcript."""

    def __init__(self, after: int, limit: int, search: str | None) -> None:
        self._after, self._limit = after, limit
        self._wanted = None if search is None else search.casefold()
        self._entries: list[TranscriptEntry] = []
        self._open: TranscriptEntry | None = None
        self._reported_usage = Usage()
        self._lines = self._size = self._matches = 0
        self._full = False

    def read(self, number: int, line: bytes) -> None:
        self._lines = number
        tells = _USAGE_MARK in line
        if not tells and self._wanted is None and (number <= self._after or self._full):
            return
        entry = _entry(number, line)
        if tells:
            before, self._reported_usage = (
                self._reported_usage,
                _usage(entry.data).largest(self._reported_usage),
            )
            entry = replace(entry, turn=self._reported_usage.less(before))
        if self._open is not None and _continues(self._open, entry):
            text = self._open.text + entry.text
            self._open = replace(self._open, last=number, text=text, data=entry.data)
            return
        self._close()
        self._open = entry

    def page(self) -> TranscriptPage:
        self._close()
        return TranscriptPage(
            self._entries,
            self._entries[-1].last if self._full else None,
            self._lines,
            None if self._wanted is None else self._matches,
        )

    def _close(self) -> None:
        """Take the entry that has come to its end, if it belongs to the page."""
        entry, self._open = self._open, None
        if entry is None or not (self._wanted is None or _has(entry, self._wanted)):
            return
        self._matches += 1
        if entry.number <= self._after or self._full:
            return
        size = self._size + sum(map(len, _texts(entry)))
        self._full = bool(self._entries) and (len(self._entries) == self._limit or size > _MOST_CHARACTERS)
        if not self._full:
            self._entries.append(entry)
            self._size = size


def _continues(last: TranscriptEntry, entry: TranscriptEntry) -> bool:
    """Whether a text that comes in pieces continues; a piece that is not the last one has `more`."""
    more = isinstance(last.data, dict) and last.data.get("more") is True
    return more and last.kind == entry.kind


def _entry(number: int, line: bytes) -> TranscriptEntry:
    try:
        found = json.loads(line)
        kind, text = str(found["kind"]), str(found.get("text") or "")
        return TranscriptEntry(
            number, number, int(found.get("ms") or 0), kind, text, found.get("data") or None
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return TranscriptEntry(number, number, 0, str(EventKind.NOTE), decoded(line).strip(), None)


def _has(entry: TranscriptEntry, wanted: str) -> bool:
    return any(wanted in part.casefold() for part in _texts(entry))


def _texts(entry: TranscriptEntry) -> Iterator[str]:
    yield entry.kind
    yield entry.text
    if entry.data is not None:
        yield json.dumps(entry.data, ensure_ascii=False)


def _usage(data: Any) -> Usage:
    """What a line says was used so far; nothing where it says so in a way that cannot be meant."""
    names = [each.name for each in fields(Usage)]
    said = {name: data[name] for name in names if name in data} if isinstance(data, dict) else {}
    try:
        return Usage(**said)
    except ValueError:
        return Usage()


def record_session(
    tx: Transaction,
    artifacts: ArtifactStore,
    session: Session,
    role: str,
    spender: Spender,
    failed: SessionFailed | None = None,
    *,
    prompt: str | None = None,
    prompt_file: str | None = None,
) -> int:
    """The number of the session. Its usage is charged by the listener that heard it.

    What it was asked is kept beside its transcript, where it is given, as `prompt_file` or by the name of its role.
    """
    if prompt is not None:
        artifacts.put(
            tx,
            prompt.encode("utf-8", "replace"),
            name=prompt_file or f"{role}-prompt.md",
            media_type="text/markdown",
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        )
    transcript = None
    if session.transcript:
        transcript = artifacts.put(
            tx,
            session.transcript,
            name=f"{role}-transcript.jsonl",
            media_type="application/jsonl",
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        ).sha256
    if session.simulated and spender.attempt_id is not None:
        mark_simulated(tx, spender.attempt_id)
    return add_session(
        tx,
        role=role,
        engine=session.engine,
        model=session.model,
        usage=session.usage,
        run_id=spender.run_id,
        attempt_id=spender.attempt_id,
        failure=None if failed is None else str(failed.failure),
        reason=None if failed is None else str(failed),
        resume=session.resume,
        transcript=transcript,
        simulated=session.simulated,
    )
