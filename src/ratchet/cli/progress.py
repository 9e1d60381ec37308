"""Showing on stderr that long work is under way."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ratchet.cli.output import note
from ratchet.cli.words import one_line

if TYPE_CHECKING:
    from ratchet.ledger import Event


_TOLD = ("agent.", "attempt.")
_SHOWN = 160
_STAGES = {
    "session": "the engine writes it",
    "session ended": "the engine has written it",
    "checking": "its tests run, its servers start and are called",
    "state changed": "its state was carried over",
    "checked": "everything that was checked passed",
    "pushed": "its commit is stored",
    "placed": "its files are in place",
    "recorded": "its version is recorded",
}


@contextlib.contextmanager
def progress(what: str, *, quiet: bool, told: tuple[str, ...] = _TOLD) -> Iterator[Callable[[Event], None]]:
    """What is to be called with each event of the run. Those whose types begin with one of `told` get a line."""
    if quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _moving(what) as hear:
            yield hear
    else:
        yield partial(_line, told)


def _line(told: tuple[str, ...], event: Event) -> None:
    if event.type.startswith(told):
        note(_line_of(event))


@contextlib.contextmanager
def _moving(what: str) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"{escape(what)} …") as status:
        yield lambda event: status.update(f"{escape(what)} … [dim]{escape(_line_of(event))}[/dim]")


def _line_of(event: Event) -> str:
    message = one_line(event.message or "")
    if event.type == "agent.stage":
        message = _STAGES.get(message, message)
    text = message if event.type.endswith(".stage") else f"{event.type} {message}".rstrip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# Less than ten, so that a busy machine is in time as well.
_EVERY_SECONDS = 8.0


@contextlib.contextmanager
def working(what: str, *, every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """A moving line with `what` until the block ends; where nobody watches, a line each time it was silent long."""
    if not sys.stderr.isatty():
        with _beating(what, every_seconds):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


@contextlib.contextmanager
def _beating(what: str, every_seconds: float) -> Iterator[None]:
    ended, began = threading.Event(), time.monotonic()

    def beat() -> None:
        while not ended.wait(every_seconds):
            note(f"{what}: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=beat, name="ratchet-working", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
