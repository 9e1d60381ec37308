"""Showing on stderr that long work goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """A moving line with `what` until the block ends; nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield
