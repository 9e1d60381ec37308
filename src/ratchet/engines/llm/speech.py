"""What a model says, told while it says it: in pieces, a few times a second, without secrets."""

from __future__ import annotations

import time

from ratchet.engines.secrets import Secrets
from ratchet.engines.session import EventKind
from ratchet.engines.transcript import Transcript

_EVERY_SECONDS = 0.1


class Speech:
    """The words of one answer. An event that goes on in the next one of its kind has `more` in its data."""

    def __init__(self, transcript: Transcript, secrets: Secrets) -> None:
        self._transcript = transcript
        self._secrets = secrets
        self._kind = EventKind.MESSAGE
        self._waiting = ""
        self._told_at = time.monotonic()

    def hear(self, kind: EventKind, piece: str) -> None:
        if kind is not self._kind:
            self.end()
            self._kind = kind
        if self._waiting and time.monotonic() - self._told_at >= _EVERY_SECONDS:
            self._tell_some()
        self._waiting += piece

    def end(self) -> None:
        """Tell the rest."""
        if self._waiting:
            self._transcript.say(self._kind, self._secrets.hide(self._waiting))
            self._waiting = ""

    def _tell_some(self) -> None:
        # A secret may come in two pieces: its beginning waits for the rest.
        ready = self._waiting[: len(self._waiting) - self._secrets.held_back(self._waiting)]
        self._waiting = self._waiting[len(ready) :]
        self._told_at = time.monotonic()
        if ready:
            self._transcript.say(self._kind, self._secrets.hide(ready), {"more": True})
