"""Showing on stderr how far a workflow is: a moving line on a terminal, a line per step elsewhere, or everything."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ratchet.cli.output import note, print_line
from ratchet.cli.words import lines, one_line
from ratchet.ledger import Event
from ratchet.operations import record

Hear = Callable[[Event], None]

_SHOWN = 160
_AT_ONCE = 3
_ENDS = {"step.completed": "done", "step.failed": "failed", "step.cancelled": "cancelled"}
_REPORTED = {**_ENDS, "step.retrying": "tries again", "step.held": "waits"}
_SAID = ("step.output", "step.token")


@contextlib.contextmanager
def progress(what: str, steps: int, *, quiet: bool, follow: bool = False) -> Iterator[Hear]:
    """What is to be called with each event of the run. With `follow` it tells of each; as JSON lines, if `quiet`."""
    if follow:
        yield (lambda event: print_line(record(event))) if quiet else EventLines().hear
    elif quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _moving(what, steps) as hear:
            yield hear
    else:
        yield _line


class EventLines:
    """Every event as a line; what a model says continues in its line while nobody else speaks."""

    def __init__(self) -> None:
        self._speaking: str | None = None

    def hear(self, event: Event) -> None:
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
            note(_line_of(event))

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


def _line(event: Event) -> None:
    if event.type in _REPORTED:
        note(_line_of(event))


@contextlib.contextmanager
def _moving(what: str, steps: int) -> Iterator[Hear]:
    from rich.console import Console
    from rich.markup import escape

    done, running = 0, dict[str, None]()
    with Console(stderr=True).status(f"{escape(what)} …") as status:

        def hear(event: Event) -> None:
            nonlocal done
            name = str(_data(event).get("name") or "")
            if event.type == "step.running":
                running[name] = None
            elif event.type in _ENDS:
                running.pop(name, None)
                done += 1
            if event.type not in _SAID:
                at = _listed(list(running))
                status.update(f"{escape(what)} … {done} of {max(steps, done)} [dim]{escape(at)}[/dim]")

        yield hear


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _AT_ONCE} more" if len(names) > _AT_ONCE else ""
    return one_line(", ".join(names[:_AT_ONCE])) + more


def _line_of(event: Event) -> str:
    name = one_line(str(_data(event).get("name") or ""))
    message = one_line(event.message or "")
    if event.type in _REPORTED:
        text = f"{name}: {_REPORTED[event.type]}" + (f": {message}" if message else "")
    else:
        text = " ".join(filter(None, (event.type, name, message if message != name else "")))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _data(event: Event) -> Mapping[str, Any]:
    return event.data if isinstance(event.data, Mapping) else {}
