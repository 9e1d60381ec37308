"""Messages from outside: each starts one run, whatever its source, its workers and its network do."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratchet import doctor
from ratchet.cli.operation import CliCall
from ratchet.cli.session import CliSession
from ratchet.config import Loaded
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Conflict, Misuse
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import since
from ratchet.ledger.runs import Run, list_runs
from ratchet.ledger.workflows import save_workflow
from ratchet.runtime import Runtime
from ratchet.workflows import triggers as of_triggers
from ratchet.workflows.trigger_sources import (
    AmqpSource,
    MessageSource,
    RedisSource,
    kafka_settings,
    open_source,
)
from ratchet.workflows.trigger_watch import Listener, TriggerWatch
from ratchet.workflows.triggers import (
    Message,
    RefusedMessage,
    Since,
    Trigger,
    TriggerKind,
    UnsignedMessage,
    get_trigger,
    take_message,
    take_webhook,
)
from tests.agentkit.servers import free_port
from tests.debian import program
from tests.waiting import eventually
from tests.workflows.running.tools import sums
from tests.workflows.scheduling.kafka_broker import KafkaBroker

Add = Callable[..., Trigger]
SECRET = "not-a-real-secret"
ONE_DATABASE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def add(ledger: Ledger, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds a trigger of the workflow `sums`, which takes a `number`."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with ledger.write() as tx:
        save_workflow(tx, write_spec(sums()), origin="test")
    call = CliCall(CliSession(), ledger, runtime)

    def make(name: str, kind: TriggerKind, **options: Any) -> Trigger:
        of_triggers.add(call, name, kind, "sums", **options)
        with ledger.read() as tx:
            return get_trigger(tx, name)

    return make


@pytest.fixture
def watching(runtime: Runtime) -> Iterator[Callable[[str], TriggerWatch]]:
    """Starts what listens beside a worker of this name."""
    started: list[TriggerWatch] = []

    def start(process_id: str) -> TriggerWatch:
        watch = TriggerWatch(runtime, process_id)
        watch.start()
        started.append(watch)
        return watch

    yield start
    for each in started:
        each.stop()


def runs(ledger: Ledger) -> list[Run]:
    with ledger.read() as tx:
        return list_runs(tx, kind="workflow", limit=200)[::-1]


def numbers(ledger: Ledger) -> list[Any]:
    return sorted(run.spec["inputs"]["number"] for run in runs(ledger))


def look(ledger: Ledger, name: str) -> Trigger:
    with ledger.read() as tx:
        return get_trigger(tx, name)


def events(ledger: Ledger, type: str) -> int:
    with ledger.read() as tx:
        return len(since(tx.connection, where=EventFilter(type=type)))


def test_a_message_that_is_delivered_twice_has_one_run(add: Add, ledger: Ledger, runtime: Runtime) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET")
    message = Message("one", b'{"number": 5, "more": true}')
    first = take_message(runtime, "hook", message, actor="test")
    again = take_message(runtime, "hook", message, actor="another")
    assert (first.repeated, again.repeated, first.run_id == again.run_id) == (False, True, True)
    assert numbers(ledger) == [5]
    assert look(ledger, "hook").started == 1


@ONE_DATABASE
@pytest.mark.parametrize("body", [b"[1]", b"five", b"\xff", b'{"number": "x"}', b"{}", b" " * 2_000_000])
def test_a_message_that_can_start_no_run_is_recorded_with_the_reason(
    body: bytes, add: Add, ledger: Ledger, runtime: Runtime
) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET")
    with pytest.raises(RefusedMessage) as refused:
        take_message(runtime, "hook", Message("one", body), actor="test")
    with ledger.read() as tx:
        [event] = since(tx.connection, where=EventFilter(type="trigger.refused"))
    assert event.message == f"hook: {refused.value}"
    assert (runs(ledger), look(ledger, "hook").refused, events(ledger, "trigger.refused")) == ([], 1, 1)


@ONE_DATABASE
def test_what_the_trigger_says_is_not_replaced_by_a_message_and_no_file_is_read(
    add: Add, ledger: Ledger, runtime: Runtime
) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET", inputs={"number": 1})
    take_message(runtime, "hook", Message("one", b'{"number": 666}'), actor="test")
    assert numbers(ledger) == [1]
    add("whole", TriggerKind.WEBHOOK, secret="HOOK_SECRET", takes="number")
    take_message(runtime, "whole", Message("one", b"7"), actor="test")
    assert numbers(ledger) == [1, 7]
    with pytest.raises(RefusedMessage):
        take_message(runtime, "whole", Message("two", b"@/etc/hostname"), actor="test")


@ONE_DATABASE
def test_a_request_counts_only_with_its_signature_and_sent_again_it_is_the_same(
    add: Add, ledger: Ledger, runtime: Runtime
) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET")

    def send(body: bytes, name: str = "hook", **headers: str) -> bool:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return take_webhook(runtime, name, sent, body, actor="test").repeated

    body = b'{"number": 5}'
    own = sign(b"a." + body)
    assert send(body, x_ratchet_delivery="a", x_ratchet_signature=own) is False
    assert send(body, x_ratchet_delivery="a", x_ratchet_signature=own) is True
    assert send(body, x_hub_signature_256=sign(body), x_github_delivery="1") is False
    assert send(body, x_hub_signature_256=sign(body), x_github_delivery="2") is True
    for headers in (
        {},
        # The same request under another name.
        {"x_ratchet_delivery": "b", "x_ratchet_signature": own},
        {"x_ratchet_signature": sign(b"." + body)},
        {"x_hub_signature_256": sign(b"{}")},
        {"x_hub_signature_256": "é"},
    ):
        with pytest.raises(UnsignedMessage):
            send(body, **headers)
    with pytest.raises(UnsignedMessage):
        send(body, "nowhere", x_hub_signature_256=sign(body))
    assert numbers(ledger) == [5, 5]


@ONE_DATABASE
def test_without_its_secret_a_webhook_answers_as_to_any_stranger_and_the_owner_sees_why(
    add: Add, ledger: Ledger, runtime: Runtime, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET")
    headers = {"x-hub-signature-256": sign(b"{}")}
    with pytest.raises(UnsignedMessage) as unknown:
        take_webhook(runtime, "nowhere", headers, b"{}", actor="test")
    monkeypatch.delenv("HOOK_SECRET")
    for _ in range(2):
        with pytest.raises(UnsignedMessage) as unset:
            take_webhook(runtime, "hook", headers, b"{}", actor="test")
    assert str(unset.value).replace("hook", "nowhere") == str(unknown.value)
    assert "HOOK_SECRET" not in f"{unset.value} {unset.value.hint}"
    reason = look(ledger, "hook").reason or ""
    assert "HOOK_SECRET is not set" in reason
    # Written once, however often a stranger asks.
    assert events(ledger, "trigger.unreachable") == 1
    [named] = [each for each in doctor.ledger(loaded) if each.name == "trigger hook"]
    assert (named.status, "HOOK_SECRET" in named.detail, "HOOK_SECRET" in (named.fix or "")) == (
        "warn",
        True,
        True,
    )
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    body = b'{"number": 5}'
    take_webhook(runtime, "hook", {"x-hub-signature-256": sign(body)}, body, actor="test")
    assert look(ledger, "hook").reason is None


def sign(signed: bytes) -> str:
    return f"sha256={hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()}"


@ONE_DATABASE
def test_a_trigger_keeps_no_secret_and_says_what_it_lacks(add: Add, ledger: Ledger, tmp_path: Path) -> None:
    for options in (
        {"url": "redis://:hunter2hunter2@127.0.0.1", "topic": "x"},
        {"url": "redis://127.0.0.1"},
        {"url": "$NOT A NAME", "topic": "x"},
        {"url": "redis://127.0.0.1", "topic": "x", "pattern": "*"},
        {"url": "redis://127.0.0.1", "topic": "x", "takes": "nothing"},
    ):
        with pytest.raises(Misuse):
            add("wrong", TriggerKind.REDIS, **options)
    with pytest.raises(Misuse, match="there is no directory"):
        add("wrong", TriggerKind.FILES, folder=str(tmp_path / "nowhere"))
    with ledger.read() as tx:
        assert of_triggers.list_triggers(tx) == []


class ScriptedSource:
    """Gives these messages again until they are acknowledged; one that is an error is raised instead."""

    def __init__(self, script: list[Message | Exception], told: list[str]) -> None:
        self._script, self._told = script, told

    def read(self) -> Sequence[Message]:
        if self._script and isinstance(self._script[0], Exception):
            raise self._script.pop(0)  # type: ignore[misc]
        return [each for each in self._script[:1] if isinstance(each, Message)]

    def acknowledge(self, message: Message) -> None:
        self._told.append(message.id)
        if self._told.count(message.id) == 2:
            self._script.pop(0)
        elif self._told.count(message.id) == 1:
            raise ConnectionError("the broker went away")

    def close(self) -> None:
        pass


@ONE_DATABASE
def test_a_broker_that_goes_away_is_said_and_what_it_gives_again_has_one_run(
    add: Add, ledger: Ledger, runtime: Runtime
) -> None:
    told: list[str] = []
    trigger = add("orders", TriggerKind.REDIS, url="redis://127.0.0.1", topic="orders")
    script: list[Message | Exception] = [Message("1", b'{"number": 1}')]
    listener = Listener(runtime, trigger, "worker", lambda *_: ScriptedSource(script, told))
    listener.start()
    try:
        eventually(lambda: look(ledger, "orders").reason == "the broker went away")
        eventually(lambda: told == ["1", "1"])
        eventually(lambda: look(ledger, "orders").reason is None)
    finally:
        listener.stop()
    assert numbers(ledger) == [1]
    assert events(ledger, "trigger.unreachable") == 1


@ONE_DATABASE
def test_a_paused_trigger_takes_nothing(add: Add, ledger: Ledger, runtime: Runtime) -> None:
    add("hook", TriggerKind.WEBHOOK, secret="HOOK_SECRET")
    call = CliCall(CliSession(), ledger, runtime)
    of_triggers.pause(call, "hook")
    with pytest.raises(Conflict, match="paused"):
        take_message(runtime, "hook", Message("one", b'{"number": 5}'), actor="test")
    of_triggers.resume(call, "hook")
    take_message(runtime, "hook", Message("one", b'{"number": 5}'), actor="test")
    assert numbers(ledger) == [5]


@pytest.mark.soak
@ONE_DATABASE
def test_each_file_that_appears_has_one_run_with_two_workers_and_after_a_restart(
    add: Add, ledger: Ledger, tmp_path: Path, watching: Callable[[str], TriggerWatch]
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "before.txt").write_text("there already")
    os.utime(inbox / "before.txt", (0, 0))
    add("scans", TriggerKind.FILES, folder=str(inbox), pattern="*.txt", inputs={"number": 1})
    first, _ = watching("first"), watching("second")
    (inbox / "a.txt").write_text("a")
    (inbox / "b.pdf").write_text("b")
    (inbox / "link.txt").symlink_to("/etc/hostname")
    (inbox / ".moving").write_text("c")
    (inbox / ".moving").rename(inbox / "c.txt")
    eventually(lambda: look(ledger, "scans").started == 2)
    first.stop()
    third = watching("third")
    (inbox / "d.txt").write_text("d")
    eventually(lambda: look(ledger, "scans").started == 3)
    third.stop()
    assert len(runs(ledger)) == 3


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


class RedisServer:
    """A real one that keeps what it was told, also when it is killed."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._place = place
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [program("redis-server", packages=["redis-server"]), "--port", str(self.port)]
        command += ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen(
            [*command, "--dir", str(self._place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def add(self, *numbers: int) -> None:
        import redis

        with redis.Redis.from_url(self.url) as client:
            for number in numbers:
                eventually(partial(self._added, client, number))

    def _added(self, client: Any, number: int) -> bool:
        import redis

        try:
            client.xadd("orders", {"number": number})
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False
        return True

    @property
    def pending(self) -> int:
        import redis

        with redis.Redis.from_url(self.url) as client:
            return int(client.xpending("orders", "ratchet-orders")["pending"])


@pytest.mark.soak
@ONE_DATABASE
def test_a_redis_stream_is_read_by_two_workers_and_outlasts_a_server_that_is_killed(
    add: Add, ledger: Ledger, redis: RedisServer, watching: Callable[[str], TriggerWatch]
) -> None:
    redis.add(0)
    add("orders", TriggerKind.REDIS, url=redis.url, topic="orders", since=Since.START)
    watching("first")
    watching("second")
    redis.add(*range(1, 20))
    eventually(lambda: look(ledger, "orders").started == 20)
    redis.stop()
    eventually(lambda: look(ledger, "orders").reason is not None)
    redis.start()
    redis.add(20)
    eventually(lambda: look(ledger, "orders").started == 21)
    eventually(lambda: redis.pending == 0)
    assert numbers(ledger) == list(range(21))


@pytest.mark.soak
@ONE_DATABASE
def test_messages_of_a_worker_that_died_are_taken_over(
    add: Add, ledger: Ledger, redis: RedisServer, watching: Callable[[str], TriggerWatch]
) -> None:
    import redis as client_library

    add("orders", TriggerKind.REDIS, url=redis.url, topic="orders", since=Since.START)
    with client_library.Redis.from_url(redis.url) as client:
        client.xgroup_create("orders", "ratchet-orders", id="0", mkstream=True)
        redis.add(1, 2)
        assert client.xreadgroup("ratchet-orders", "dead", {"orders": ">"})
    watching("alive")
    eventually(lambda: numbers(ledger) == [1, 2])
    eventually(lambda: redis.pending == 0)


class RabbitServer:
    """A real RabbitMQ with its own node, database and port mapper."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        program("rabbitmq-server", packages=["rabbitmq-server"])
        self.port, self._mapper, between = (free_port() for _ in range(3))
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._env = {
            **os.environ,
            "HOME": str(place),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # So that it can be ended although the node that was killed did not sign off.
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
            "RABBITMQ_NODENAME": f"ratchet{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(between),
            "RABBITMQ_MNESIA_BASE": str(place / "db"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
            "RABBITMQ_PID_FILE": str(place / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["/usr/lib/rabbitmq/bin/rabbitmq-server"],
            env=self._env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        eventually(self._answers)

    def _answers(self) -> bool:
        import pika
        from pika.exceptions import AMQPError

        try:
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
        except (AMQPError, OSError):
            return False
        return True

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        epmd = shutil.which("epmd") or "epmd"
        subprocess.run([epmd, "-kill"], env=self._env, capture_output=True, timeout=60, check=False)

    def send(self, *messages: tuple[str | None, int]) -> None:
        import pika

        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            for id, number in messages:
                about = pika.BasicProperties(message_id=id, delivery_mode=2)
                channel.basic_publish("", "orders", json.dumps({"number": number}).encode(), about)

    @property
    def waiting(self) -> int:
        import pika

        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            return int(connection.channel().queue_declare("orders", passive=True).method.message_count)


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path / "rabbit")
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.mark.soak
@ONE_DATABASE
def test_a_queue_that_is_not_there_is_asked_for_again_without_leaving_connections(
    add: Add, rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER", rabbit.url)
    trigger = add("orders", TriggerKind.AMQP, url="$BROKER", topic="nowhere")
    with pytest.raises(Exception, match="no queue 'nowhere'") as failed:
        AmqpSource(trigger)
    # What was raised keeps the source, so that only closing it closes its connection.
    eventually(lambda: not connections_to(rabbit.port))
    del failed


def connections_to(port: int) -> list[str]:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line[1] for line in lines if line[2].endswith(f":{port:04X}") and line[3] == "01"]


@pytest.mark.soak
@ONE_DATABASE
def test_a_stream_that_is_none_is_asked_for_again_without_leaving_connections(
    add: Add, redis: RedisServer
) -> None:
    import redis as client_library

    trigger = add("orders", TriggerKind.REDIS, url=redis.url, topic="orders")
    with client_library.Redis.from_url(redis.url) as client:
        client.set("orders", "no stream")
        # What was raised keeps the source, so that only closing it closes its connection.
        with pytest.raises(client_library.ResponseError) as failed:
            RedisSource(trigger, "first")
        eventually(lambda: len(client.client_list()) == 1)
        del failed


@pytest.mark.soak
@ONE_DATABASE
def test_an_amqp_queue_outlasts_a_server_that_is_killed_and_a_message_sent_twice_has_one_run(
    add: Add,
    ledger: Ledger,
    rabbit: RabbitServer,
    watching: Callable[[str], TriggerWatch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROKER", rabbit.url)
    add("orders", TriggerKind.AMQP, url="$BROKER", topic="orders")
    watching("first")
    # The queue is not there yet.
    eventually(lambda: "orders" in (look(ledger, "orders").reason or ""))
    rabbit.send(("a", 1), ("a", 1), (None, 2), (None, 3))
    eventually(lambda: look(ledger, "orders").started == 3)
    rabbit.kill()
    eventually(lambda: look(ledger, "orders").reason is not None)
    assert "guest:guest" not in str(look(ledger, "orders").reason)
    rabbit.start()
    rabbit.send(("a", 1), ("b", 4))
    eventually(lambda: look(ledger, "orders").started == 4)
    eventually(lambda: rabbit.waiting == 0)
    assert numbers(ledger) == [1, 2, 3, 4]


@pytest.mark.soak
@ONE_DATABASE
def test_a_message_that_a_quorum_queue_delivers_again_is_the_same(
    add: Add, rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read, and its reader was gone before it was acknowledged."""
    import pika

    monkeypatch.setenv("BROKER", rabbit.url)
    trigger = add("orders", TriggerKind.AMQP, url="$BROKER", topic="quorum")
    with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        channel.basic_publish("", "quorum", b'{"number": 1}', pika.BasicProperties(headers={"from": "shop"}))
    read: list[Message] = []

    def reads_one(source: MessageSource) -> bool:
        read.extend(source.read())
        return bool(read)

    ids = []
    for _ in range(3):
        with contextlib.closing(open_source(trigger, "worker")) as source:
            eventually(partial(reads_one, source))
        ids.append(read.pop().id)
    assert len({*ids}) == 1


@pytest.fixture
def kafka() -> Iterator[KafkaBroker]:
    broker = KafkaBroker()
    yield broker
    broker.close()


@pytest.mark.soak
@ONE_DATABASE
def test_a_kafka_topic_is_read_by_two_workers_and_outlasts_a_broker_that_goes_away(
    add: Add, ledger: Ledger, kafka: KafkaBroker, watching: Callable[[str], TriggerWatch]
) -> None:
    add("orders", TriggerKind.KAFKA, url=f"kafka://{kafka.address}", topic="orders", since=Since.START)
    first = watching("first")
    # The topic is not there yet.
    eventually(lambda: "orders" in (look(ledger, "orders").reason or ""))
    kafka.make("orders", 3)
    kafka.send("orders", *range(10))
    eventually(lambda: look(ledger, "orders").started == 10)
    watching("second")
    kafka.send("orders", *range(10, 20))
    eventually(lambda: look(ledger, "orders").started == 20)
    kafka.go_away()
    eventually(lambda: kafka.address in (look(ledger, "orders").reason or ""))
    kafka.come_back()
    kafka.send("orders", 20)
    eventually(lambda: look(ledger, "orders").started == 21)
    first.stop()
    kafka.send("orders", 21)
    eventually(lambda: kafka.committed("orders", "ratchet-orders", 3) == 22)
    assert numbers(ledger) == list(range(22))


@ONE_DATABASE
def test_a_kafka_url_says_how_to_log_in_and_loads_no_programs(add: Add) -> None:
    told = kafka_settings("kafka+ssl://ann:s%40y@one:9093,two:9093?sasl.mechanism=SCRAM-SHA-512")
    assert told == {
        "bootstrap.servers": "one:9093,two:9093",
        "security.protocol": "SASL_SSL",
        "sasl.username": "ann",
        "sasl.password": "s@y",
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    assert kafka_settings("kafka://one:9092")["security.protocol"] == "PLAINTEXT"
    for url in ("redis://one:6379", "kafka://one:9092?plugin.library.paths=/tmp/evil.so"):
        with pytest.raises(Misuse):
            add("wrong", TriggerKind.KAFKA, url=url, topic="orders")
