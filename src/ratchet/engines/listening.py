"""Putting what a session says into the ledger while it runs.

Events come from the engine at any pace; they are written in batches, so that a talkative session costs few commits. The
usage that a session reports on its way is charged with each batch: a process that dies loses at most the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields

from ratchet.engines.session import EventKind, SessionEvent
from ratchet.kernel import Usage
from ratchet.ledger import Budgets, Ledger, Spender, Transaction
from ratchet.ledger.usage import charge

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


class Listener:
    """Takes a session's events, and knows how much of its usage is charged already."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._waiting: list[SessionEvent] = []
        self._reported = Usage()
        self._charged = Usage()

    def hear(self, event: SessionEvent) -> None:
        if event.kind is EventKind.USAGE:
            self._reported = _larger(_usage(event), self._reported)
        if self._waiting and _continues(self._waiting[-1], event):
            event = SessionEvent(event.kind, self._waiting.pop().text + event.text, event.data)
        self._waiting.append(event)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Write what is heard until the block ends. What comes last waits for `settle`, or is written if it fails."""
        writer = asyncio.create_task(self._write_for_ever())
        try:
            yield
        except BaseException:
            self._flush()
            raise
        finally:
            writer.cancel()
            await asyncio.wait([writer])

    def settle(self, tx: Transaction, used: Usage) -> None:
        """Write the rest, and charge what the whole session used, less what is charged already."""
        self._reported = _larger(used, self._reported)
        self._write(tx)

    async def _write_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self._flush()

    def _flush(self) -> None:
        if self._waiting or self._reported != self._charged:
            # Not through the job: what was used was used, even by a worker that has lost its job meanwhile.
            with self._account.ledger.write(actor=self._account.actor) as tx:
                self._write(tx)

    def _write(self, tx: Transaction) -> None:
        waiting, self._waiting = self._waiting, []
        owed, self._charged = _less(self._reported, self._charged), self._reported
        account = self._account
        for event in waiting:
            tx.event(
                f"session.{event.kind}",
                run_id=account.spender.run_id,
                attempt_id=account.spender.attempt_id,
                project_id=account.spender.project_id,
                message=event.text[:_LONGEST] or None,
                data=dict(event.data) or None,
            )
        if owed != Usage():
            charge(tx, account.spender, owed, account.budgets, engine=account.engine, model=account.model)


def _continues(last: SessionEvent, event: SessionEvent) -> bool:
    """Whether a text that comes in pieces goes on; a piece that is not the last one has `more`."""
    return bool(last.data.get("more")) and last.kind is event.kind


def _usage(event: SessionEvent) -> Usage:
    """What a session says it has used so far, all of it."""
    names = {each.name for each in fields(Usage)}
    return Usage(**{name: value for name, value in event.data.items() if name in names})


def _larger(one: Usage, other: Usage) -> Usage:
    return Usage(**{f.name: max(getattr(one, f.name), getattr(other, f.name)) for f in fields(Usage)})


def _less(whole: Usage, part: Usage) -> Usage:
    return Usage(**{f.name: max(0, getattr(whole, f.name) - getattr(part, f.name)) for f in fields(Usage)})
