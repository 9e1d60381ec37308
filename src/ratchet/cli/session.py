"""What was asked for on the command line as a whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ratchet.config import Loaded


@contextlib.contextmanager
def interrupted() -> Iterator[threading.Event]:
    """Is set by the first Ctrl-C while the block runs; a second one is an exception as usual."""
    asked = threading.Event()
    previous = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)


@dataclass(slots=True)
class CliSession:
    """One use of `ratchet`. Filled while the line is parsed: options may come before or after a command."""

    json: bool = False
    verbose: bool = False
    flags: dict[str, object] = field(default_factory=dict)
    new_home: Path | None = None
    """The home, if there was none when it was first asked for."""
    _looked: bool = False

    def load(self, flags: Mapping[str, object] | None = None) -> Loaded:
        """The settings, with everything given on the command line as their strongest source."""
        from ratchet.config import load_settings

        detail = {"log.level": "debug"} if self.verbose else {}
        loaded = load_settings({**detail, **self.flags, **(flags or {})})
        if not self._looked:
            self._looked, self.new_home = True, None if loaded.home.exists() else loaded.home
        return loaded


def configure_logs(loaded: Loaded) -> None:
    """Set what a command writes to the log."""
    from ratchet.observe import logs

    if loaded.settings.sets("log"):
        logs.configure(loaded.settings.log.level, loaded.settings.log.format)
    else:
        # The defaults are the same, and to ask for them would load all that checks settings.
        logs.configure()
