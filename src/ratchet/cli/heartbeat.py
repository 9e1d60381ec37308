"""Saying what a run waits for: each pause with its countdown, and something whenever it was silent for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ratchet.cli.output import note, silent_seconds
from ratchet.cli.words import one_line

if TYPE_CHECKING:
    from ratchet.ledger import Event

# Less than ten, so that a busy machine is in time as well.
_EVERY_SECONDS = 8.0
_SHOWN = 160
_DOING = {
    "session.started": "the session has begun",
    "session.usage": "the model is at work",
    "session.message": "the model speaks",
    "session.reasoning": "the model thinks",
    "session.tool_call": "a tool is used:",
    "session.tool_result": "the model looks at a result",
    "session.file_change": "a file was changed:",
    "attempt.started": "an attempt has begun",
    "run.running": "the run has begun",
    "environment_command": "the project is set up:",
    "baseline_started": "the checks run on the untouched base",
}


class Heartbeat:
    """Hears the events of a run, and speaks up while it is silent. `quiet` never does."""

    def __init__(self, *, quiet: bool = False, every_seconds: float = _EVERY_SECONDS) -> None:
        self._quiet = quiet
        self._every = every_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="ratchet-heartbeat", daemon=True)
        self._doing = "the run to begin"
        self._since = time.monotonic()
        self._again_at: float | None = None
        """When a pause is over, if there is one."""

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ended.set()
        if not self._quiet:
            self._thread.join()

    def hear(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data if isinstance(event.data, Mapping) else {}
        message = one_line(event.message or "")
        now = time.monotonic()
        if event.type in ("session.retry", "research.pause"):
            seconds = data.get("seconds")
            told = one_line(str(data.get("reason") or message))
            self._set(told, now + seconds if isinstance(seconds, int | float) else None)
            if not self._quiet:
                note(self._told() if self._again_at is not None else f"retrying: {self._doing}")
        elif event.type in _DOING:
            shown = message if _DOING[event.type].endswith(":") else ""
            self._set(f"{_DOING[event.type]} {shown}".rstrip(), None)

    def _set(self, doing: str, again_at: float | None) -> None:
        self._doing = doing if len(doing) <= _SHOWN else f"{doing[:_SHOWN]}…"
        self._again_at, self._since = again_at, time.monotonic()

    def _told(self) -> str:
        if self._again_at is not None and (left := self._again_at - time.monotonic()) > 0:
            return f"retrying in {left:.0f} s: {self._doing}"
        return f"waiting for {time.monotonic() - self._since:.0f} s: {self._doing}"

    def _beat(self) -> None:
        while not self._ended.wait(max(0.1, self._every - silent_seconds())):
            if silent_seconds() >= self._every:
                note(self._told())
