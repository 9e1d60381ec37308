"""Putting what a session says into the ledger while it runs.

Events come from the engine at any pace; they are written in batches, so that a talkative session costs few commits. The
usage that a session reports on its way is charged with each batch: a process that dies loses at most the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from ratchet.engines.session import EventKind, SessionEvent
from ratchet.kernel import LedgerUnavailable, Usage
from ratchet.ledger import Budgets, Ledger, Spender, Transaction
from ratchet.ledger.usage import charge
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


class Writer(Protocol):
    """Does work in a transaction: one of its own, or one that others share."""

    async def __call__(self, work: Callable[[Transaction], T], /) -> T: ...


def write_now(book: Book) -> Writer:
    """A transaction of `book`, in the event loop's own thread."""

    async def write(work: Callable[[Transaction], T]) -> T:
        with book.write() as tx:
            return work(tx)

    return write


def write_in_thread(book: Book) -> Writer:
    """A transaction of `book` in another thread, for an event loop that has others to serve."""

    def write_it(work: Callable[[Transaction], T]) -> T:
        with book.write() as tx:
            return work(tx)

    async def write(work: Callable[[Transaction], T]) -> T:
        return await asyncio.to_thread(write_it, work)

    return write


class Listener:
    """Takes a session's events, and knows how much of its usage is charged already."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._waiting: list[SessionEvent] = []
        self._reported = Usage()
        self._charged = Usage()
        self._engine, self._model = account.engine, account.model

    @property
    def used(self) -> Usage:
        """What the session has used, as far as that was told."""
        return self._reported

    def hear(self, event: SessionEvent) -> None:
        if event.kind is EventKind.USAGE:
            self._reported = _usage(event).largest(self._reported)
            self.learn(event.data.get("engine"), event.data.get("model"))
        if self._waiting and _continues(self._waiting[-1], event):
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

    async def record(self, write: Writer, used: Usage, work: Callable[[Transaction], T]) -> T:
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
        """Write what waits. It counts as written when the transaction is committed, not before."""
        account, count, reported = self._account, len(self._waiting), self._reported
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
        tx.after_commit(lambda: self._written(count, reported))

    def _written(self, count: int, reported: Usage) -> None:
        del self._waiting[:count]
        self._charged = reported


def account_of(job: JobContext, spender: Spender, engine: str, model: str | None = None) -> Account:
    """The account of a session that a job holds for `spender`."""
    budgets = configured_budgets(job.runtime.settings)
    return Account(job.ledger, job.process_id, spender, budgets, engine, model)


def _continues(last: SessionEvent, event: SessionEvent) -> bool:
    """Whether a text that comes in pieces goes on; a piece that is not the last one has `more`."""
    return bool(last.data.get("more")) and last.kind is event.kind


def _usage(event: SessionEvent) -> Usage:
    """What a session says it has used so far, all of it."""
    names = {each.name for each in fields(Usage)}
    return Usage(**{name: value for name, value in event.data.items() if name in names})
