"""The sources of triggers: folders, and brokers, each with the client that its project names."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from ratchet.extras import missing
from ratchet.kernel import Misuse, decoded, exact_bytes
from ratchet.workflows.triggers import Message, Since, Trigger, TriggerKind, variable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

_WAIT_SECONDS = 1.0
_AT_ONCE = 64
# A message that another consumer was given and has not told of for so long is taken over from it.
_IDLE_MS = 10_000


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
    return f"file:{hashlib.sha256(exact_bytes(told)).hexdigest()}"


def _about(path: str, seen: os.stat_result) -> Mapping[str, Any]:
    readable = decoded(exact_bytes(path))
    return {"file": readable, "path": readable, "name": os.path.basename(readable), "size": seen.st_size}  # noqa: PTH119


@contextlib.contextmanager
def _closed_if_it_fails(source: MessageSource) -> Iterator[None]:
    """A source that cannot be opened is opened again and again: it leaves no connection behind."""
    try:
        yield
    except BaseException:
        source.close()
        raise


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
        with _closed_if_it_fails(self):
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
    return {decoded(key): decoded(value) for key, value in fields.items()}


class AmqpSource:
    """A queue. A message without a `message_id` is known by what is in it."""

    def __init__(self, trigger: Trigger) -> None:
        try:
            import pika
        except ImportError:
            raise missing("amqp", f"the trigger {trigger.name}") from None
        self._connection = pika.BlockingConnection(pika.URLParameters(_url(trigger)))
        with _closed_if_it_fails(self):
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


# What quorum queues count in a message that they deliver again.
_COUNTERS = frozenset(("x-delivery-count", "x-acquired-count"))


def _amqp_id(properties: Any, body: bytes) -> str:
    if properties.message_id:
        return f"id:{properties.message_id}"
    sent = {name: value for name, value in (properties.headers or {}).items() if name not in _COUNTERS}
    about = (properties.timestamp, properties.correlation_id, properties.app_id, sent or None)
    return f"content:{hashlib.sha256(repr(about).encode() + body).hexdigest()}"


class KafkaSource:
    """A topic, read by the group `ratchet-TRIGGER`, whose offsets are committed message by message."""

    def __init__(self, trigger: Trigger) -> None:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError:
            raise missing("kafka", f"the trigger {trigger.name}") from None
        self._topic = trigger.source["topic"]
        self._since = None if trigger.source.get("since") == Since.START else trigger.created_at
        self._trouble = ""
        self._is_down = False
        self._consumer: Consumer = Consumer(
            {
                **kafka_settings(_url(trigger)),
                "group.id": f"ratchet-{trigger.name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": _IDLE_MS,
                # What goes wrong comes to `_note`, and not on the standard error output.
                "log_level": 0,
                "error_cb": self._note,
            }
        )
        with _closed_if_it_fails(self):
            try:
                found = self._consumer.list_topics(self._topic, timeout=10).topics[self._topic].error
            except KafkaException as error:
                raise ConnectionError(self._trouble or error.args[0].str()) from error
            if found is not None:
                raise ConnectionError(f"topic {self._topic}: {found.str()}")
            self._consumer.subscribe([self._topic], on_assign=self._begin)

    def read(self) -> Sequence[Message]:
        from confluent_kafka import KafkaException

        try:
            found = self._consumer.poll(_WAIT_SECONDS)
        except KafkaException as error:
            raise ConnectionError(error.args[0].str()) from error
        if self._is_down:
            raise ConnectionError(self._trouble)
        if found is None:
            return []
        if (trouble := found.error()) is not None:
            raise ConnectionError(trouble.str())
        # The time tells a message from the one that had its place before the topic was made again.
        place = (found.topic(), found.partition(), found.offset(), found.timestamp()[1])
        return [Message(":".join(map(str, place)), found.value() or b"", found)]

    def acknowledge(self, message: Message) -> None:
        from confluent_kafka import KafkaError, KafkaException

        moved = (
            KafkaError.REBALANCE_IN_PROGRESS,
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.UNKNOWN_MEMBER_ID,
        )
        try:
            self._consumer.commit(message=message.receipt, asynchronous=False)
        except KafkaException as error:
            # Its partition is another worker's now, which is given it again and finds the run.
            if error.args[0].code() not in moved:
                raise

    def close(self) -> None:
        self._consumer.close()

    def _note(self, error: KafkaError) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = True
            self._trouble = self._trouble or error.str()
        else:
            self._trouble = error.str()

    def _begin(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Where to read: behind what was committed, and without that from when the trigger was added."""
        from confluent_kafka import OFFSET_END, TopicPartition

        kept = consumer.committed(partitions, timeout=10)
        new = [each for each in kept if each.offset < 0]
        if new and self._since is not None:
            wanted = [TopicPartition(each.topic, each.partition, self._since) for each in new]
            found = consumer.offsets_for_times(wanted, timeout=10)
            # There is none so late: only what is still to come counts.
            new = [
                TopicPartition(each.topic, each.partition, each.offset if each.offset >= 0 else OFFSET_END)
                for each in found
            ]
        consumer.assign([*(each for each in kept if each.offset >= 0), *new])


_KAFKA_OPTIONS = ("sasl.mechanism", "ssl.ca.location")


def kafka_settings(url: str) -> dict[str, Any]:
    """What a client is told, from `kafka://[USER:PASSWORD@]HOST:PORT[,…]`, or `kafka+ssl://` for TLS.

    Of a client's other settings none may be in a URL: some of them load programs.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("kafka", "kafka+ssl"):
        raise Misuse(
            "the URL is none of Kafka", hint="such as kafka://127.0.0.1:9092, or kafka+ssl:// for TLS"
        )
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := sorted(options.keys() - set(_KAFKA_OPTIONS)):
        raise Misuse(
            f"{unknown[0]} is no option of a Kafka URL", hint=f"there is {' and '.join(_KAFKA_OPTIONS)}"
        )
    login, _, brokers = parts.netloc.rpartition("@")
    security = "SSL" if parts.scheme == "kafka+ssl" else "PLAINTEXT"
    settings: dict[str, Any] = {"bootstrap.servers": brokers, "security.protocol": security, **options}
    if login:
        user, _, password = login.partition(":")
        settings |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
        settings |= {
            "security.protocol": f"SASL_{security}",
            "sasl.mechanism": options.get("sasl.mechanism", "PLAIN"),
        }
    return settings


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
        case TriggerKind.KAFKA:
            return KafkaSource(trigger)
        case _:
            return FileSource(trigger)
