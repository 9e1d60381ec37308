"""Carrying a protocol or an onboarding in the foreground, and telling what it has come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ratchet.cli.foreground import INTERRUPTED, Foreground
from ratchet.cli.output import confirm, note
from ratchet.cli.protocol_pages import print_overview
from ratchet.cli.protocol_progress import progress
from ratchet.cli.records import print_document
from ratchet.cli.words import lines, one_line
from ratchet.engines import Failure
from ratchet.forges import ForgeError
from ratchet.kernel import Missing, RunStatus
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.sessions import list_sessions
from ratchet.protocols.ci import ask_forge
from ratchet.protocols.views import overview
from ratchet.runtime import anybody_works

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Ledger, Run

Overview = Mapping[str, Any]
# How often the forge is asked about checks.
_ASK_SECONDS = 10.0


def is_done(found: Overview) -> bool:
    """Whether a protocol has come as far as it goes by itself: completed, or planned if its steps wait for a person."""
    by_hand = not found["automatic"] and found["status"] in ("planned", "running")
    return found["status"] == RunStatus.COMPLETED or by_hand


def carry_protocol(
    session: Session,
    here: Foreground,
    run_id: int,
    what: str,
    *,
    done: Callable[[Overview], bool] = is_done,
    wait: bool = True,
) -> int:
    """Work until it stands still, tell what it has come to, and the exit code: 0 only if it is `done`.

    With `wait` the forge is asked for checks that a step waits for.
    """
    waiting = _Waiting(here, run_id, wanted=wait, quiet=session.json)
    with progress(here.ledger, run_id, what, quiet=session.json) as hear:
        here.carry_jobs(run_id, hear, quiet=session.json, wait=waiting)
    with here.ledger.read() as tx:
        found = overview(tx, run_id)
        last = list_sessions(tx, run_id=run_id, limit=1)
    if session.json:
        print_document(found)
    else:
        print_overview(found)
    if here.interrupted:
        return INTERRUPTED
    if done(found):
        return 0
    lacks = found["status"] == "blocked" and last and last[0].failure == Failure.MISSING
    return Missing.exit_code if lacks else 1


def carry_setup(session: Session, here: Foreground, run_id: int, project: str) -> Run:
    """Work until an onboarding has ended or is blocked."""
    with progress(here.ledger, run_id, f"setting up {project}", quiet=session.json) as hear:
        return here.carry(run_id, hear, quiet=session.json)


def leave_to_workers(session: Session, ledger: Ledger, document: Mapping[str, Any], text: str) -> None:
    """Say that something is in line, and who will do it."""
    confirm(session, document, text)
    tell_who_works(session, ledger)


def tell_who_works(session: Session, ledger: Ledger) -> None:
    """Say so if nobody works on this ledger: what is in line would wait for ever."""
    with ledger.read() as tx:
        working = anybody_works(tx)
    if not working and not session.json:
        note("Nobody works on this ledger now: `ratchet worker` or `ratchet serve` does.")


class _Waiting:
    """Whether CI may still speak. Asks the forge itself, since no webhook reaches a command."""

    def __init__(self, here: Foreground, run_id: int, *, wanted: bool, quiet: bool) -> None:
        self._here, self._run_id = here, run_id
        self._wanted, self._quiet = wanted, quiet
        self._asked: list[str | None] = []
        self._next = 0.0

    def __call__(self) -> bool:
        waiting = self._commits() if self._wanted else []
        if not waiting:
            return False
        if waiting == self._asked and time.monotonic() < self._next:
            return True
        try:
            asyncio.run(ask_forge(self._here.runtime, self._run_id, actor="cli"))
        except ForgeError as error:
            self._tell(error)
            return False
        self._asked, self._next = waiting, time.monotonic() + _ASK_SECONDS
        return True

    def _commits(self) -> list[str | None]:
        with self._here.ledger.read() as tx:
            return [each.commit for each in list_protocol_steps(tx, self._run_id) if each.awaits_ci]

    def _tell(self, error: ForgeError) -> None:
        if not self._quiet:
            note(f"The forge cannot be asked for checks: {one_line(str(error))}")
            if error.hint:
                note(f"hint: {lines(error.hint)}")
            note("A webhook to `ratchet serve` lets it go on as well.")
