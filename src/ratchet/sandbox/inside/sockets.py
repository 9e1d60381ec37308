"""What the sockets of a network namespace hold, which is memory that no process has mapped."""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_UNIX, _IPV4, _IPV6, _TCP, _UDP = 1, 2, 10, 6, 17
_NETLINK, _DIAGNOSIS, _BY_FAMILY, _DUMP = 16, 4, 20, 0x301
_FAILED, _DONE = 2, 3
_HEADER, _ATTRIBUTE, _ALIGNED = struct.Struct("IHHII"), struct.Struct("HH"), 3


class _Question(NamedTuple):
    """`head` bytes come before the attributes of each answer, of which one is `memory` and one may be `queue`."""

    body: bytes
    head: int
    memory: int
    queue: int | None


def _internet(family: int, protocol: int) -> _Question:
    return _Question(struct.pack("BBBBI48x", family, protocol, 1 << 6, 0, 0xFFFFFFFF), 72, 7, None)


_QUESTIONS = (
    _Question(struct.pack("BBHIIIII", _UNIX, 0, 0, 0xFFFFFFFF, 0, 0x30, 0, 0), 16, 5, 4),
    *(_internet(family, protocol) for family in (_IPV4, _IPV6) for protocol in (_TCP, _UDP)),
)


def count() -> int:
    """How many there are in this network namespace."""
    with open("/proc/self/net/sockstat") as file:
        return int(file.readline().split()[-1])


def queued_bytes() -> int:
    """What is on its way in all of them. A kernel that does not tell of a kind counts as none."""
    return sum(map(_queued, _QUESTIONS))


def _queued(question: _Question) -> int:
    sent = received = 0
    for kind, words in _attributes(question):
        if kind == question.queue:
            received += struct.unpack_from("I", words)[0]
        elif kind == question.memory:
            # To be read, to be sent, and sent: a local socket counts at its sender what the other has not read yet.
            to_read, _, sending, _, _, to_send = struct.unpack_from("6I", words)
            sent += sending if question.queue else to_read + to_send
    # What the sender left behind when it was closed is only known to the receiver.
    return max(sent, received)


def _attributes(question: _Question) -> Iterator[tuple[int, memoryview]]:
    import socket  # slow to import, and few commands have many sockets

    with socket.socket(_NETLINK, socket.SOCK_RAW, _DIAGNOSIS) as link:
        link.settimeout(1)
        header = _HEADER.pack(_HEADER.size + len(question.body), _BY_FAMILY, _DUMP, 1, 0)
        link.sendto(header + question.body, (0, 0))
        while True:
            answer, at = memoryview(link.recv(1 << 16)), 0
            while at < len(answer):
                size, kind, *_ = _HEADER.unpack_from(answer, at)
                if kind in (_FAILED, _DONE):
                    return
                place, end = at + _HEADER.size + question.head, at + size
                while place + _ATTRIBUTE.size <= end:
                    length, name = _ATTRIBUTE.unpack_from(answer, place)
                    yield name, answer[place + _ATTRIBUTE.size : place + length]
                    place += max(length + _ALIGNED & ~_ALIGNED, _ATTRIBUTE.size)
                at += max(size + _ALIGNED & ~_ALIGNED, _HEADER.size)
