"""Listening to the sources of triggers beside a worker: brokers and folders, each in a thread of its own."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ratchet.config.redaction import hide_known
from ratchet.extras import missing
from ratchet.kernel import LedgerUnavailable, RatchetError, with_hint
from ratchet.runtime import Runtime
from ratchet.runtime.processes import Complaint
from ratchet.workflows.triggers import (
    Message,
    RefusedMessage,
    Since,
    Trigger,
    TriggerKind,
    list_triggers,
    note_reason,
    take_message,
    variable,
)

_LOOK_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_WAIT_SECONDS = 1.0
_AT_ONCE = 64
# A message that another consumer was given and has not told of for so long is taken over from it.
_IDLE_MS = 10_000
_JOIN_SECONDS = 20.0
_log = logging.getLogger(__name__)


class MessageSource(Protocol):
    """Where messages come from. What is read and not acknowledged comes again, if only after it was opened again."""

    def read(self) -> Sequence[Message]:
        """The next messages; none after a second without one."""
        ...

    def acknowledge(self, message: Message) -> None: ...

    def close(self) -> None: ...


class FileSource:
    """Files that appear in a folder. Each is a message once it has not changed between two looks."""

    def __init__(self, trigger: Trigger) -> None:
        self._folder = trigger.source["folder"]
        self._pattern = trigger.source.get("pattern", "*")
        all_of_them = trigger.source.get("since") == Since.START
        self._since_ns = 0 if all_of_them else trigger.created_at * 1_000_000
        self._before: dict[str, str] = {}
        self._taken: set[str] = set()

    def read(self) -> Sequence[Message]:
        time.sleep(_WAIT_SECONDS)
        found: dict[str, str] = {}
        settled: list[Message] = []
        for path, seen in self._files():
            found[path] = id = _file_id(path, seen)
            if id not in self._taken and self._before.get(path) == id:
                settled.append(Message(id, _about(path, seen)))
        self._taken &= set(found.values())
        self._before = found
        return settled

    def acknowledge(self, message: Message) -> None:
        self._taken.add(message.id)

    def close(self) -> None:
        pass

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not fnmatch.fnmatch(entry.name, self._pattern):
                    continue
                with contextlib.suppress(FileNotFoundError):  # it was there, and is gone
                    seen = entry.stat(follow_symlinks=False)
                    # A link may lead anywhere, also to what its maker may not read.
                    if stat.S_ISREG(seen.st_mode) and seen.st_ctime_ns >= self._since_ns:
                        yield entry.path, seen


def _file_id(path: str, seen: os.stat_result) -> str:
    told = f"{path}\0{seen.st_ino}\0{seen.st_mtime_ns}\0{seen.st_size}"
    return f"file:{hashlib.sha256(told.encode(errors='surrogateescape')).hexdigest()}"


def _about(path: str, seen: os.stat_result) -> Mapping[str, Any]:
    readable = path.encode(errors="surrogateescape").decode(errors="replace")
    return {"file": readable, "path": readable, "name": os.path.basename(readable), "size": seen.st_size}  # noqa: PTH119


class RedisSource:
    """A stream, read by the group `ratchet-TRIGGER`. Its entries are acknowledged one by one."""

    def __init__(self, trigger: Trigger, consumer: str) -> None:
        try:
            import redis
        except ImportError:
            raise missing("redis", f"the trigger {trigger.name}") from None
        self._stream, self._group, self._consumer = (
            trigger.source["topic"],
            f"ratchet-{trigger.name}",
            consumer,
        )
        self._client = redis.Redis.from_url(_url(trigger), socket_timeout=10, socket_connect_timeout=10)
        first = "0" if trigger.source.get("since") == Since.START else f"{trigger.created_at}-0"
        try:
            self._client.xgroup_create(self._stream, self._group, id=first, mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._claimed = 0.0

    def read(self) -> Sequence[Message]:
        if time.monotonic() - self._claimed > _IDLE_MS / 2000:
            self._claimed = time.monotonic()
            left = self._client.xautoclaim(
                self._stream, self._group, self._consumer, min_idle_time=_IDLE_MS, count=_AT_ONCE
            )
            if left[1]:
                return self._messages(left[1])
        given = self._client.xreadgroup(
            self._group, self._consumer, {self._stream: ">"}, count=_AT_ONCE, block=int(_WAIT_SECONDS * 1000)
        )
        entries = given.items() if isinstance(given, dict) else given or ()
        return [each for _, found in entries for each in self._messages(_flat(found))]

    def _messages(self, entries: Sequence[Any]) -> list[Message]:
        # An entry that was deleted from the stream has no fields any more.
        return [
            Message(f"{self._stream}:{id.decode()}", _texts(fields), id)
            for id, fields in entries
            if fields is not None
        ]

    def acknowledge(self, message: Message) -> None:
        self._client.xack(self._stream, self._group, message.receipt)

    def close(self) -> None:
        self._client.close()


def _flat(found: Any) -> Sequence[Any]:
    """The entries of a stream; newer protocols put them into one more list."""
    return found[0] if found and isinstance(found[0], list) else found


def _texts(fields: Mapping[bytes, bytes]) -> Mapping[str, str]:
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in fields.items()}


class AmqpSource:
    """A queue. A message without a `message_id` is known by what is in it."""

    def __init__(self, trigger: Trigger) -> None:
        try:
            import pika
        except ImportError:
            raise missing("amqp", f"the trigger {trigger.name}") from None
        self._connection = pika.BlockingConnection(pika.URLParameters(_url(trigger)))
        self._channel = self._connection.channel()
        # It must be there: with which properties it is made is not for its reader to say.
        self._channel.queue_declare(trigger.source["topic"], passive=True)
        self._channel.basic_qos(prefetch_count=_AT_ONCE)
        self._given = self._channel.consume(trigger.source["topic"], inactivity_timeout=_WAIT_SECONDS)

    def read(self) -> Sequence[Message]:
        method, properties, body = next(self._given)
        if method is None:
            return []
        return [Message(_amqp_id(properties, body), body, method.delivery_tag)]

    def acknowledge(self, message: Message) -> None:
        self._channel.basic_ack(message.receipt)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be what went wrong
            self._connection.close()


def _amqp_id(properties: Any, body: bytes) -> str:
    if properties.message_id:
        return f"id:{properties.message_id}"
    about = (properties.timestamp, properties.correlation_id, properties.app_id, properties.headers)
    return f"content:{hashlib.sha256(repr(about).encode() + body).hexdigest()}"


def _url(trigger: Trigger) -> str:
    """The address of the broker, from the environment if the trigger names a variable."""
    url = str(trigger.source["url"])
    return variable(url[1:]) if url.startswith("$") else url


def open_source(trigger: Trigger, process_id: str) -> MessageSource:
    match trigger.kind:
        case TriggerKind.REDIS:
            return RedisSource(trigger, process_id)
        case TriggerKind.AMQP:
            return AmqpSource(trigger)
        case _:
            return FileSource(trigger)


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
