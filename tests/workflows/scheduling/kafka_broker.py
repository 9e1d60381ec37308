"""A Kafka broker of librdkafka, which it has for tests: it speaks the protocol over sockets, groups included."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

_PRODUCER, _BROKER = 0, 1
_HANDLE = ctypes.c_void_p
_SIGNATURES = {
    "rd_kafka_conf_new": ((), _HANDLE),
    "rd_kafka_conf_set": (
        (_HANDLE, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
        None,
    ),
    "rd_kafka_new": ((ctypes.c_int, _HANDLE, ctypes.c_char_p, ctypes.c_size_t), _HANDLE),
    "rd_kafka_destroy": ((_HANDLE,), None),
    "rd_kafka_mock_cluster_new": ((_HANDLE, ctypes.c_int), _HANDLE),
    "rd_kafka_mock_cluster_destroy": ((_HANDLE,), None),
    "rd_kafka_mock_cluster_bootstraps": ((_HANDLE,), ctypes.c_char_p),
    "rd_kafka_mock_broker_set_down": ((_HANDLE, ctypes.c_int32), ctypes.c_int),
    "rd_kafka_mock_broker_set_up": ((_HANDLE, ctypes.c_int32), ctypes.c_int),
    "rd_kafka_mock_topic_create": ((_HANDLE, ctypes.c_char_p, ctypes.c_int, ctypes.c_int), ctypes.c_int),
}


def _library() -> ctypes.CDLL:
    # The wheel keeps it beside the package; elsewhere it is the system's.
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = ctypes.CDLL(str(next(iter(beside.glob("librdkafka*")), "librdkafka.so.1")))
    for name, (takes, gives) in _SIGNATURES.items():
        function = getattr(found, name)
        function.argtypes, function.restype = takes, gives
    return found


class KafkaBroker:
    """Keeps its messages and offsets while it is down."""

    def __init__(self) -> None:
        self._lib = _library()
        said = ctypes.create_string_buffer(200)
        conf = self._lib.rd_kafka_conf_new()
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"0", said, len(said))
        self._handle = self._lib.rd_kafka_new(_PRODUCER, conf, said, len(said))
        assert self._handle, said.value
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._handle, 1)
        self.address = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def make(self, topic: str, partitions: int) -> None:
        self._lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def send(self, topic: str, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for number in numbers:
            producer.produce(topic, json.dumps({"number": number}), key=str(number))
        assert producer.flush(60) == 0

    def committed(self, topic: str, group: str, partitions: int) -> int:
        """How many messages of a topic a group has acknowledged."""
        asker = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        try:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            return sum(max(each.offset, 0) for each in asker.committed(asked, timeout=60))
        finally:
            asker.close()

    def go_away(self) -> None:
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, _BROKER)

    def come_back(self) -> None:
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, _BROKER)

    def close(self) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._handle)
