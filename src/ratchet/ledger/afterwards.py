"""Transactions that were not waited for are put on disk a moment later, all of that moment together."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

from ratchet.ledger.disk import put_on_disk

_log = logging.getLogger(__name__)
_SECONDS = 0.2


class Afterwards:
    """That of one ledger. A server sees to it by itself, so there is something to do only for the file of SQLite."""

    def __init__(self, path: Path | None) -> None:
        self._log_file = None if path is None else path.with_name(f"{path.name}-wal")
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()
        # A transaction is either in time for the timer that runs, or starts the next.
        self._lock = threading.Lock()

    def committed(self) -> None:
        """One was, and nobody has waited for the disk."""
        with self._lock:
            if self._log_file is None or (self._timer is not None and self._pid == os.getpid()):
                return
            self._pid = os.getpid()
            self._timer = threading.Timer(_SECONDS, self._settle, (self._log_file,))
            self._timer.name, self._timer.daemon = "ratchet-afterwards", True
            with contextlib.suppress(RuntimeError):  # no thread can be had
                self._timer.start()
                return
        self._settle(self._log_file)

    def close(self) -> None:
        """Do what is left to do now."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None and self._log_file is not None:
            timer.cancel()
            self._settle(self._log_file)

    def _settle(self, log_file: Path) -> None:
        with self._lock:
            self._timer = None
        try:
            put_on_disk(log_file)
        except FileNotFoundError:
            return  # all of it was moved into the database meanwhile
        except OSError as error:
            _log.warning("%s could not be put on disk: %s", log_file, error)
