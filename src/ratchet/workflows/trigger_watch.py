"""Listening to the sources of triggers beside a worker, each in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from ratchet.config.redaction import hide_known
from ratchet.kernel import LedgerUnavailable, RatchetError, with_hint
from ratchet.runtime import Runtime
from ratchet.runtime.processes import Complaint
from ratchet.workflows.trigger_sources import MessageSource, open_source
from ratchet.workflows.triggers import (
    RefusedMessage,
    Trigger,
    TriggerKind,
    list_triggers,
    note_reason,
    take_message,
)

_LOOK_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_JOIN_SECONDS = 20.0
_log = logging.getLogger(__name__)


class Listener:
    """Listens to one trigger until it is stopped. What goes wrong is recorded, and tried again ever more seldom."""

    def __init__(
        self,
        runtime: Runtime,
        trigger: Trigger,
        process_id: str,
        opener: Callable[..., MessageSource] = open_source,
    ) -> None:
        self._runtime, self._trigger, self._process_id = runtime, trigger, process_id
        self._open = opener
        self._stop = threading.Event()
        self._complaint = Complaint(_log, f"trigger {trigger.name}", f"trigger {trigger.name} is back")
        self._thread = threading.Thread(target=self._run, name=f"ratchet-trigger-{trigger.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self._stop.set()
        # One that hangs in a broken connection is left: what it has not acknowledged comes again.
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                with contextlib.closing(self._open(self._trigger, self._process_id)) as source:
                    self._note(None)
                    while not self._stop.is_set():
                        self._take(source)
                        pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001  whatever a client raises: the reason is shown, and it tries again
                said = with_hint(error) if isinstance(error, RatchetError) else str(error)
                reason = hide_known(said or type(error).__name__)
                self._complaint.make(reason)
                self._note(reason)
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _take(self, source: MessageSource) -> None:
        for message in source.read():
            if self._stop.is_set():
                return
            # Recorded before its source is told so; one that can start no run has its reason on record instead.
            with contextlib.suppress(RefusedMessage):
                take_message(self._runtime, self._trigger.name, message, actor=self._process_id)
            source.acknowledge(message)

    def _note(self, reason: str | None) -> None:
        if reason is None:
            self._complaint.end()
        with contextlib.suppress(LedgerUnavailable), self._runtime.ledger.write(actor=self._process_id) as tx:
            note_reason(tx, self._trigger.name, reason)


class TriggerWatch:
    """Has one listener for each trigger that is active, beside a worker."""

    def __init__(self, runtime: Runtime, process_id: str) -> None:
        self._runtime, self._process_id = runtime, process_id
        self._stop = threading.Event()
        self._trouble = Complaint(_log, "cannot look at the triggers", "the triggers are looked at again")
        self._listeners: dict[str, tuple[object, Listener]] = {}
        self._thread = threading.Thread(target=self._run, name="ratchet-triggers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        for _, each in self._listeners.values():
            each.ask_to_stop()
        for _, each in self._listeners.values():
            each.stop()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
                self._trouble.end()
            except Exception as error:  # noqa: BLE001  it continues: a database that is away comes back
                self._trouble.make(error)
            self._stop.wait(_LOOK_SECONDS)

    def _look(self) -> None:
        with self._runtime.ledger.read() as tx:
            found = list_triggers(tx)
        wanted = {
            each.name: each for each in found if not each.paused and each.kind is not TriggerKind.WEBHOOK
        }
        for name, (form, listener) in list(self._listeners.items()):
            if name not in wanted or _form(wanted[name]) != form:
                listener.ask_to_stop()
                del self._listeners[name]
        for name, trigger in wanted.items():
            if name not in self._listeners:
                listener = Listener(self._runtime, trigger, self._process_id)
                self._listeners[name] = (_form(trigger), listener)
                listener.start()


def _form(trigger: Trigger) -> object:
    """What a listener is made of: where one of these changes, another one is needed."""
    return trigger.kind, dict(trigger.source), trigger.created_at
