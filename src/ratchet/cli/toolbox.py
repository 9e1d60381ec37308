"""Opening the tools for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ratchet.cli.opening import existing_runtime
from ratchet.cli.session import Session
from ratchet.runtime import Kinds, Runtime
from ratchet.tools.registry import Toolbox, open_toolbox


@contextlib.contextmanager
def existing_toolbox(session: Session, kinds: Kinds | None = None) -> Iterator[tuple[Runtime, Toolbox]]:
    """The tools of the home that is there, and the runtime that they are called in."""
    with (
        existing_runtime(session, kinds or Kinds()) as runtime,
        contextlib.closing(open_toolbox(runtime.ledger, runtime.settings, runtime.home)) as toolbox,
    ):
        yield runtime, toolbox
