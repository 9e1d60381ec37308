"""Telling on stderr how a protocol or an onboarding goes: a line for what matters, and a moving one for the rest."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ratchet.cli.output import note
from ratchet.cli.words import one_line
from ratchet.ledger import Event, Ledger
from ratchet.ledger.runs import list_steps

Hear = Callable[[Event], None]

_SHOWN = 200
_PLAN = "plan"
# Of the moving line: what a message gets at least, and what the spinner and the dots take.
_LEAST, _AROUND = 10, 8
# What is told in other words by what comes before or after it.
_SILENT = {
    "approval_kept",
    "codemachine_step_completed",
    "open_pr_enqueued",
    "paused",
    "planning_enqueued",
    "qa_enqueued",
    "resumed",
    "setup_clarifications",
    "setup_completed",
    "setup_enqueued",
    "setup_started",
    "spec_validated",
    "step_completed",
    "step_enqueued",
}
_WORDS = {
    "ci_awaited": "waits for CI",
    "ci_failed": "CI failed it",
    "loop_decision": "goes back",
    "open_pr": "opened",
    "open_pr_failed": "no pull request",
    "open_pr_skipped": "no pull request",
    "planned": "planned",
    "pull_request_ready": "ready",
    "pull_request_updated": "up to date",
    "pushed": "pushed",
    "qa_failed": "did not pass",
    "qa_skipped_policy": "done",
    "setup_assets": "CI scripts",
    "step_execution_failed": "failed",
    "step_rebased": "brought onto the newest commit",
    "step_retry": "tried anew",
}
# What may be found anew at every step, and need not be told as often.
_ONCE = ("open_pr_failed", "open_pr_skipped", "step_started", "worktree_warning")


class Teller:
    """Says in a line what an event means. Names of steps are looked up when they are first met."""

    def __init__(self, ledger: Ledger, run_id: int) -> None:
        self._ledger, self._run_id = ledger, run_id
        self._names: dict[int, str] = {}
        self._said: set[str] = set()

    def told(self, event: Event) -> str | None:
        """A line about something that matters, or nothing."""
        message = one_line(event.message or "")
        if event.type == "attempt.started":
            name, number = self._name(event), _number(event)
            if number == 1 and name != _PLAN:
                return None
            text = f"{name}: try {number}" if number > 1 else "planning …"
        elif event.type == "step_fix":
            text = f"{self._name(event)}: goes back to its author"
        elif "." in event.type or event.type in _SILENT:
            return None
        else:
            text = self._sentence(event, message)
            if event.type in _ONCE and text in self._said:
                return None
            self._said.add(text)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

    def at(self, event: Event) -> str | None:
        """What goes on at the moment, for a line that moves."""
        name, message = self._name(event), one_line(event.message or "")
        if not message:
            return None
        return message if not name or message.startswith(name) else f"{name}: {message}"

    def _sentence(self, event: Event, message: str) -> str:
        name, words = self._name(event), _WORDS.get(event.type)
        if name and message.startswith(f"{name} "):
            message = message.removeprefix(f"{name} ")
        return ": ".join(filter(None, (name, words, message))) or event.type

    def _name(self, event: Event) -> str:
        if event.step_id is None:
            return ""
        if event.step_id not in self._names:
            with self._ledger.read() as tx:
                self._names = {step.id: step.name for step in list_steps(tx, self._run_id)}
        return one_line(self._names.get(event.step_id, ""))


@contextlib.contextmanager
def progress(ledger: Ledger, run_id: int, what: str, *, quiet: bool) -> Iterator[Hear]:
    """What is to be called with each event of the run."""
    teller = Teller(ledger, run_id)
    if quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _moving(teller, what) as hear:
            yield hear
    else:
        yield lambda event: _line(teller, event)


def _line(teller: Teller, event: Event) -> None:
    told = teller.told(event)
    if told is not None:
        note(told)


@contextlib.contextmanager
def _moving(teller: Teller, what: str) -> Iterator[Hear]:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    with console.status(f"{escape(what)} …") as status:

        def hear(event: Event) -> None:
            told = teller.told(event)
            if told is not None:
                console.print(escape(told), soft_wrap=True)
            at = teller.at(event)
            if at is not None:
                room = max(_LEAST, console.width - len(what) - _AROUND)
                status.update(f"{escape(what)} … [dim]{escape(at[:room])}[/dim]")

        yield hear


def _number(event: Event) -> int:
    data: Mapping[str, Any] = event.data if isinstance(event.data, Mapping) else {}
    return int(data.get("number") or 1)
