"""What a command writes to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.observe import logs

if TYPE_CHECKING:
    from ratchet.config import Loaded


def configure_logs(loaded: Loaded) -> None:
    if loaded.settings.sets("log"):
        logs.configure(loaded.settings.log.level, loaded.settings.log.format)
    else:
        # The defaults are the same, and to ask for them would load all that checks settings.
        logs.configure()
