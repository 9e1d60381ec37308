"""The log of an attempt as text: what its sessions said and what became of it, a part at a time.

A place in the log is the number of an event, so a part is read from one index however long the history is, and a
reader can go on anywhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from ratchet.kernel import LedgerUnavailable, iso
from ratchet.ledger.bell import SAFETY_SECONDS
from ratchet.ledger.events import Event, Filter, latest, since
from ratchet.ledger.ledger import Ledger
from ratchet.ledger.runs import get_attempt
from ratchet.ledger.subscription import RETRY_SECONDS, rings, wait_for_ring
from ratchet.ledger.transaction import Transaction

_log = logging.getLogger(__name__)

_PAGE = 200
_LONGEST_DATA = 2000


@dataclass(frozen=True, slots=True)
class LogPart:
    """`next_offset` is where the next part begins; `ended` says that there will be none."""

    chunk: str
    next_offset: int
    ended: bool


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
    found = latest(tx.connection, where=Filter(attempt_id=attempt_id), limit=most)
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
        told.append(data if len(data) <= _LONGEST_DATA else f"{data[:_LONGEST_DATA]}…")
    line = f"{iso(event.at)} {' '.join(told)}\n"
    return line.encode("utf-8", "replace").decode()


def _look(ledger: Ledger, attempt_id: int, after: int) -> tuple[list[Event], bool] | None:
    """The next events, and whether there will be no more behind them; nothing while the database cannot be read."""
    try:
        with ledger.read() as tx:
            ended = get_attempt(tx, attempt_id).ended_at is not None
            return since(tx.connection, after, where=Filter(attempt_id=attempt_id), limit=_PAGE), ended
    except LedgerUnavailable as error:
        _log.warning("cannot follow a log for now, trying again: %s", error)
        return None


def _events(tx: Transaction, attempt_id: int, after: int) -> Iterator[Event]:
    where = Filter(attempt_id=attempt_id)
    while page := since(tx.connection, after, where=where, limit=_PAGE):
        yield from page
        after = page[-1].id
