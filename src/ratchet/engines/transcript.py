"""The record of a session while it is being made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.engines.session import EventKind, Request, SessionEvent

# What one event may carry; a longer text is cut and says so. The whole is kept in the engine's own files, not here.
_TEXT = 64 * 1024
_WHOLE = 32 * 1024 * 1024


class Transcript:
    """Hands each event to the listener and keeps it as one line of JSON."""

    def __init__(self, request: Request, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._listen = request.listen
        self._clock = clock
        self._began = clock()
        self._lines: list[bytes] = []
        self._size = 0

    def say(self, kind: EventKind, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        event = SessionEvent(kind, _cut(text), data or {})
        self._keep(event)
        self._listen(event)

    @property
    def content(self) -> bytes:
        return b"".join(self._lines)

    @property
    def wall_ms(self) -> int:
        return round((self._clock() - self._began) * 1000)

    def _keep(self, event: SessionEvent) -> None:
        if self._size >= _WHOLE:
            return
        line = {"ms": self.wall_ms, "kind": event.kind, "text": event.text, "data": event.data}
        encoded = json.dumps(line, ensure_ascii=True, default=str).encode() + b"\n"
        self._size += len(encoded)
        if self._size >= _WHOLE:
            encoded = json.dumps(
                {"ms": self.wall_ms, "kind": "note", "text": "the transcript was cut here"}
            ).encode()
        self._lines.append(encoded)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text) - _TEXT} more characters)"
