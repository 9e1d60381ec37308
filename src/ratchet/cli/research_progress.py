"""Showing a research run while it works: a live picture on a terminal, a line per kept trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ratchet.cli.output import said
from ratchet.cli.words import one_line
from ratchet.research.views import draw_live, read_live

if TYPE_CHECKING:
    from ratchet.ledger import Event, Ledger

_DRAW_SECONDS = 0.25
# After anything but a trial.
_DRAW_REST_SECONDS = 1.0


@contextlib.contextmanager
def progress(ledger: Ledger, run_id: int, *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """What is to be called with each event of the run."""
    if quiet:
        yield lambda _event: None
    elif sys.stdout.isatty():
        with _picture(ledger, run_id) as hear:
            yield hear
    else:
        yield _line


def _line(event: Event) -> None:
    if event.type in ("trial.keep", "trial.baseline"):
        data = event.data
        print(f"{data['exp_id']} {event.type.removeprefix('trial.')} {data['score']:.6g}", flush=True)
        said()
    elif event.type in ("run.blocked", "run.failed"):
        print(f"{event.type}: {one_line(event.message or '')}", flush=True)
        said()


@contextlib.contextmanager
def _picture(ledger: Ledger, run_id: int) -> Iterator[Callable[[Event], None]]:
    from rich.live import Live

    drawn = 0.0
    with Live(auto_refresh=False, transient=True) as live:

        def hear(event: Event) -> None:
            nonlocal drawn
            pause = _DRAW_SECONDS if event.type.startswith("trial.") else _DRAW_REST_SECONDS
            if time.monotonic() - drawn > pause:
                drawn = time.monotonic()
                with ledger.read() as tx:
                    live.update(draw_live(read_live(tx, run_id)), refresh=True)

        yield hear
