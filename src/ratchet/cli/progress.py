"""Showing on stderr that long work is under way."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ratchet.cli.output import note, print_line
from ratchet.cli.words import lines, one_line
from ratchet.kernel import shortened
from ratchet.operations import record

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
    return shortened(text, _SHOWN)


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


_AT_ONCE = 3
_SPOKEN = 60
_ENDS = {"step.completed": "done", "step.failed": "failed", "step.cancelled": "cancelled"}
_REPORTED = {**_ENDS, "step.retrying": "tries again", "step.held": "waits"}
_SAID = ("step.output", "step.token")


@contextlib.contextmanager
def workflow_progress(
    what: str, steps: int, *, quiet: bool, follow: bool = False, speak: bool = False
) -> Iterator[Callable[[Event], None]]:
    """What is to be called with each event of the run. With `follow` it tells of each; as JSON lines, if `quiet`.

    With `speak` it shows what models say, as they say it, and the end of each step.
    """
    if follow:
        yield (lambda event: print_line(record(event))) if quiet else EventLines().hear
    elif quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _counting(what, steps, speak=speak) as hear:
            yield hear
    else:
        yield EventLines(only=(*_REPORTED, "step.token")).hear if speak else _step_line


class EventLines:
    """Every event as a line; what a model says continues in its line while nobody else speaks."""

    def __init__(self, only: tuple[str, ...] | None = None) -> None:
        self._only = only
        self._speaking: str | None = None

    def hear(self, event: Event) -> None:
        if self._only is not None and event.type not in self._only:
            return
        data = _data(event)
        name, text = one_line(str(data.get("name") or "")), str(data.get("text") or "")
        if event.type == "step.token":
            self._go_on(name, text)
            return
        self._end_line()
        if event.type == "step.output":
            for line in lines(text).splitlines():
                note(f"{name} | {line}")
        else:
            note(_step_words(event))

    def _go_on(self, name: str, text: str) -> None:
        if self._speaking != name:
            self._end_line()
            print(f"{name} > ", end="", file=sys.stderr)
            self._speaking = name
        # A line that a text ends with is still a line.
        shown = lines(f"{text}.")[:-1]
        print(shown, end="", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self._speaking is not None:
            print(file=sys.stderr)
            self._speaking = None


def _step_line(event: Event) -> None:
    if event.type in _REPORTED:
        note(_step_words(event))


@contextlib.contextmanager
def _counting(what: str, steps: int, *, speak: bool) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.text import Text

    done, running, spoken = 0, dict[str, None](), dict[str, str]()
    console = Console(stderr=True)

    def tell(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    def say(name: str, text: str) -> str:
        """Whole lines of a model above the moving line; the line that it is at is a part of that."""
        *whole, spoken[name] = (spoken.get(name, "") + text).split("\n")
        for line in whole:
            tell(f"{one_line(name)} > {lines(line)}")
        return f"{name} > {spoken[name][-_SPOKEN:]}"

    with console.status(f"{escape(what)} …") as status:

        def hear(event: Event) -> None:
            nonlocal done
            name = str(_data(event).get("name") or "")
            if event.type == "step.running":
                running[name] = None
            elif event.type in _ENDS:
                running.pop(name, None)
                done += 1
                if speak:
                    if left := spoken.pop(name, ""):
                        tell(f"{one_line(name)} > {lines(left)}")
                    tell(_step_words(event))
            at = _listed(list(running))
            if event.type == "step.token" and speak:
                at = one_line(say(name, str(_data(event).get("text") or "")))
            elif event.type in _SAID:
                return
            status.update(f"{escape(what)} … {done} of {max(steps, done)} [dim]{escape(at)}[/dim]")

        yield hear


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _AT_ONCE} more" if len(names) > _AT_ONCE else ""
    return one_line(", ".join(names[:_AT_ONCE])) + more


def _step_words(event: Event) -> str:
    name = one_line(str(_data(event).get("name") or ""))
    message = one_line(event.message or "")
    if event.type in _REPORTED:
        text = f"{name}: {_REPORTED[event.type]}" + (f": {message}" if message else "")
    else:
        text = " ".join(filter(None, (event.type, name, message if message != name else "")))
    return shortened(text, _SHOWN)


def _data(event: Event) -> Mapping[str, Any]:
    return event.data if isinstance(event.data, Mapping) else {}
