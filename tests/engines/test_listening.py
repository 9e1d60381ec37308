"""What a session says and uses reaches the ledger, whatever becomes of the session."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from ratchet.engines import EventKind, SessionEvent
from ratchet.engines.transcript import Account, SessionListener
from ratchet.ledger import Budgets, EventFilter, Ledger, Spender
from ratchet.ledger import events as log
from ratchet.ledger.attention import spent
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import total


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "artifacts")


def listener_of(ledger: Ledger) -> tuple[SessionListener, int]:
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "r")
    return SessionListener(Account(ledger, "test", Spender(run_id=run_id), Budgets(), "engine")), run_id


def said(ledger: Ledger, run_id: int) -> list[str | None]:
    with ledger.read() as tx:
        found = log.since(tx.connection, where=EventFilter(run_id=run_id, type="session.*"))
    return [event.message for event in found]


def used(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return total(tx, "run", run_id).input_tokens


def test_a_session_that_breaks_off_has_said_and_used_what_it_did(ledger: Ledger) -> None:
    listener, run_id = listener_of(ledger)

    async def session() -> None:
        with listener.listening():
            listener.hear(SessionEvent(EventKind.MESSAGE, "halfway"))
            listener.hear(SessionEvent(EventKind.USAGE, data={"input_tokens": 7}))
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        asyncio.run(session())
    assert (said(ledger, run_id), used(ledger, run_id)) == (["halfway", None], 7)


def test_a_text_that_comes_in_pieces_is_one_event(ledger: Ledger) -> None:
    listener, run_id = listener_of(ledger)

    async def session() -> None:
        with contextlib.suppress(KeyError), listener.listening():
            for piece in ("one ", "two ", "three"):
                listener.hear(SessionEvent(EventKind.MESSAGE, piece, {"more": piece != "three"}))
            listener.hear(SessionEvent(EventKind.MESSAGE, "another"))
            raise KeyError

    asyncio.run(session())
    assert said(ledger, run_id) == ["one two three", "another"]


def test_usage_is_charged_once_however_often_it_is_told(ledger: Ledger) -> None:
    listener, run_id = listener_of(ledger)

    async def session() -> None:
        for tokens in (5, 5, 9, 3):
            with contextlib.suppress(KeyError), listener.listening():
                listener.hear(SessionEvent(EventKind.USAGE, data={"input_tokens": tokens}))
                raise KeyError

    asyncio.run(session())
    assert used(ledger, run_id) == 9


def test_usage_is_charged_to_the_engine_and_the_model_that_worked(ledger: Ledger) -> None:
    listener, _ = listener_of(ledger)

    async def session() -> None:
        with listener.listening():
            told = {"engine": "codex", "model": "gpt-5.5", "input_tokens": 7}
            listener.hear(SessionEvent(EventKind.USAGE, data=told))
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(session())
    with ledger.read() as tx:
        assert [each.key for each in spent(tx, "engine", since=0)] == [("codex", "gpt-5.5")]


def test_what_is_heard_is_written_while_the_session_goes_on(ledger: Ledger) -> None:
    listener, run_id = listener_of(ledger)

    async def session() -> list[str | None]:
        with listener.listening():
            listener.hear(SessionEvent(EventKind.MESSAGE, "early"))
            for _ in range(100):
                await asyncio.sleep(0.05)
                if found := said(ledger, run_id):
                    return found
        return []

    assert asyncio.run(session()) == ["early"]
