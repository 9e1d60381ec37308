"""What the kernel holds for a tree that no process of it has mapped: for descriptors, sockets, mappings and locks.

Without a cgroup the kernel has no sum of it. What is unbounded otherwise: one epoll can watch a single file as often as
there are numbers for descriptors, so a low limit on open files would not bound watches.
"""

# pathlib is slow to import.
# ruff: noqa: PTH115, PTH116, PTH123, PTH208
from __future__ import annotations

import contextlib
import math
import os
import struct
import time
from collections.abc import Container, Iterator
from typing import NamedTuple

from .linux import machine, system_call

# About what each takes: a thread with its stack, a watched file, an open one, a socket, a mapping, a lock.
THREAD_BYTES, _WATCH_BYTES, _FILE_BYTES, _SOCKET_BYTES = 24576, 200, 512, 2560
_MAPPING_BYTES, _LOCK_BYTES = 256, 256
# A watch of inotify keeps the file in memory that it is for.
_INOTIFY_BYTES = 1280
# What is on its way from one process to another cannot be looked at, and may itself hold watches.
_SENT_BYTES = 1024 * 1024
_PIPE_BYTES, _SMALL_PIPE_BYTES = 64 * 1024, 8 * 1024
# A tree is looked through once the kernel has come to use this part of its bound, which is how wrong the sum may be.
_PART = 8
_EARLIEST_TIMES, _LATEST_TIMES, _WALK_SECONDS = 20, 100, 1.0
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_FILE, _PIDFD_GETFD = 0, 438
_USED, _OF_FILES_AND_PROCESSES = "MemTotal:", {
    "MemFree:", "Buffers:", "Cached:", "SwapCached:", "AnonPages:", "SReclaimable:",
}  # fmt: skip
_PIECE = 1 << 16
# So many hold a few megabytes at most.
_FEW_SOCKETS = 32
_UNIX, _IPV4, _IPV6, _TCP, _UDP = 1, 2, 10, 6, 17
_NETLINK, _DIAGNOSIS, _BY_FAMILY, _DUMP = 16, 4, 20, 0x301
_FAILED, _DONE = 2, 3
_HEADER, _ATTRIBUTE, _ALIGNED = struct.Struct("IHHII"), struct.Struct("HH"), 3


class KernelWatch:
    """Looks through the descriptors and mappings of a tree.

    That takes long, and so is done when the kernel of the machine has come to use more, else seldom, and never again
    before many times what it took have passed.
    """

    def __init__(self, most_bytes: int | None, *, sockets: bool) -> None:
        """`sockets`: those of this network namespace are counted elsewhere, since all are the tree's."""
        self._count_sockets = not sockets
        # A quarter of what its user may watch by epoll, as of inotify: one run must leave most of it to others.
        self._most_watches = _number("/proc/sys/fs/epoll/max_user_watches", 1 << 20) // 4
        self._small_pipes_from = _number("/proc/sys/fs/pipe-user-pages-soft", 16384) * 4096
        self._step = min(most_bytes or math.inf, self._most_watches * _WATCH_BYTES) / _PART
        self._least = kernel_bytes()
        self._earliest_walk = 0.0
        self._latest_walk = time.monotonic() + _WALK_SECONDS
        self._held = _Held()

    def look(self, pids: list[int]) -> int:
        """What is held for these processes, as of the last time that they were looked through."""
        now, used = time.monotonic(), kernel_bytes()
        self._least = min(self._least, used)
        if now >= (self._earliest_walk if used - self._least > self._step else self._latest_walk):
            self._held = _Held()
            for pid in pids:
                self._held.add(pid)
            if self._count_sockets:
                self._held.add_queued()
            ended = time.monotonic()
            self._least = kernel_bytes()
            self._earliest_walk = ended + _EARLIEST_TIMES * (ended - now)
            # What others give back may hide what this tree has taken.
            self._latest_walk = ended + max(_WALK_SECONDS, _LATEST_TIMES * (ended - now))
        return self._held.bytes(self._small_pipes_from)

    @property
    def passed(self) -> bool:
        """Whether the tree has more watches than it may have of its user's."""
        return self._held.watches > self._most_watches


class _Held:
    """The sum of what was found, each open file once."""

    def __init__(self) -> None:
        self.files = self.watches = self.inotify_watches = self.sent = self.mappings = self.locks = 0
        self.nameless: dict[int, int] = {}
        self.shared_bytes = self.queued_bytes = 0
        self._named: set[str] = set()
        self._locked: set[tuple[int, str]] = set()
        self._epolls: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            self.shared_bytes += _value(f"/proc/{pid}/status", "RssShmem:") * 1024
            self.mappings += _count(f"/proc/{pid}/maps", b"\n")
            self._add_files(pid)

    def _add_files(self, pid: int) -> None:
        try:
            numbers = [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
        except PermissionError:
            self._add_hidden_files(pid)
            return
        for number in numbers:
            with contextlib.suppress(OSError):
                self._add_file(pid, number)

    def _add_hidden_files(self, pid: int) -> None:
        """Those of a process that lets no other list them, which who may trace it can have one by one."""
        process = os.pidfd_open(pid)
        own = os.getpid()
        try:
            for number in range(_value(f"/proc/{pid}/status", "FDSize:")):
                if (opened := system_call(_PIDFD_GETFD, process, number, 0)) >= 0:
                    with contextlib.suppress(OSError):
                        self._add_file(own, opened)
                    os.close(opened)
        finally:
            os.close(process)

    def _add_file(self, pid: int, number: int) -> None:
        name = os.readlink(f"/proc/{pid}/fd/{number}")
        told = f"/proc/{pid}/fdinfo/{number}"
        self.files += 1
        if name == "anon_inode:[eventpoll]":
            count = _count(told, b"tfd:")
            first = self._epolls.setdefault((number, count), (pid, number))
            if first[0] == pid or not _is_same(first, (pid, number)):
                self.watches += count
        elif name == "anon_inode:inotify":
            self.inotify_watches += _count(told, b"inotify wd:")
        elif name.startswith("/memfd:"):
            found = os.stat(f"/proc/{pid}/fd/{number}")
            self.nameless[found.st_ino] = found.st_blocks * 512
        elif name.startswith("/") and (pid, name) not in self._locked:
            # The list of all locks of the machine would have everyone wait who wants one.
            self._locked.add((pid, name))
            self.locks += _count(told, b"lock:")
        elif name.startswith(("socket:", "pipe:")) and name not in self._named:
            self._named.add(name)
            if name.startswith("socket:"):
                self.sent += _value(told, "scm_fds:")

    def add_queued(self) -> None:
        """What is on its way in these sockets, among all of this network namespace."""
        sockets = {int(name[8:-1]) for name in self._named if name.startswith("socket:")}
        if len(sockets) > _FEW_SOCKETS:
            with contextlib.suppress(OSError, ValueError, struct.error):
                self.queued_bytes = sum(_queued(question, sockets) for question in _QUESTIONS)

    def bytes(self, small_pipes_from: int) -> int:
        pipes = sum(name.startswith("pipe:") for name in self._named)
        # The kernel lets a user have so much in large pipes; those that come then are small.
        large = min(pipes * _PIPE_BYTES, small_pipes_from)
        small = (pipes - large // _PIPE_BYTES) * _SMALL_PIPE_BYTES
        return (
            self.files * _FILE_BYTES
            + (len(self._named) - pipes) * _SOCKET_BYTES
            + self.queued_bytes
            + self.watches * _WATCH_BYTES
            + self.inotify_watches * _INOTIFY_BYTES
            + self.sent * _SENT_BYTES
            + self.mappings * _MAPPING_BYTES
            + self.locks * _LOCK_BYTES
            # What is mapped of nameless files is counted at the processes.
            + max(0, sum(self.nameless.values()) - self.shared_bytes)
            + large
            + small
        )


def kernel_bytes() -> int:
    """What the machine uses that is neither of a process nor of a file on disk."""
    used = 0
    with contextlib.suppress(OSError):
        for line in read("/proc/meminfo").splitlines():
            kind, words, *_ = line.split()
            if kind in (_USED, "Shmem:"):
                used += int(words)
            elif kind in _OF_FILES_AND_PROCESSES:
                used -= int(words)
    return used * 1024


def _is_same(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two processes have the same open file, each with the number of its descriptor."""
    return system_call(_KCMP.get(machine, -1), one[0], other[0], _KCMP_FILE, one[1], other[1]) == 0


def bytes_of_node(proc: int, pidfd: int) -> int:
    """What the kernel holds for a process without descriptors worth counting: its page tables, and its locks. `proc` is
    a descriptor of a /proc in which it has some number."""
    try:
        pid = _value(f"self/fdinfo/{pidfd}", "Pid:", proc)
        total = _value(f"{pid}/status", "VmPTE:", proc) * 1024
        files = os.open(f"{pid}/fdinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return 0
    try:
        return total + sum(_count(name, b"lock:", files) for name in os.listdir(files)) * _LOCK_BYTES
    except OSError:
        return total
    finally:
        os.close(files)


def _value(path: str, kind: str, directory: int | None = None) -> int:
    """The number in the line of a file that begins so, 0 without one."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)) as file:
        return next((int(line.split()[1]) for line in file if line.startswith(kind)), 0)


def _count(path: str, word: bytes, directory: int | None = None) -> int:
    """How often a file has a word that is not longer than a line."""
    count, rest = 0, b""
    with (
        contextlib.suppress(OSError),
        open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory), "rb", buffering=0) as file,
    ):
        while piece := file.read(_PIECE):
            rest += piece
            count += rest.count(word)
            # The last line may go on in the next piece.
            rest = rest[rest.rfind(b"\n") + 1 :]
            count -= rest.count(word)
    return count + rest.count(word)


def _number(path: str, otherwise: int) -> int:
    try:
        return int(read(path))
    except (OSError, ValueError):
        return otherwise


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


class _Question(NamedTuple):
    """`head` bytes come before the attributes of each answer, of which one is `memory` and one may be `queue`. `inode`
    bytes from its start is the number of the socket."""

    body: bytes
    head: int
    memory: int
    queue: int | None
    inode: int


def _internet(family: int, protocol: int) -> _Question:
    return _Question(struct.pack("BBBBI48x", family, protocol, 1 << 6, 0, 0xFFFFFFFF), 72, 7, None, 68)


_QUESTIONS = (
    _Question(struct.pack("BBHIIIII", _UNIX, 0, 0, 0xFFFFFFFF, 0, 0x30, 0, 0), 16, 5, 4, 4),
    # Those of all protocols, which hold answers of the kernel that nobody has read.
    _Question(struct.pack("BBHIIII", _NETLINK, 255, 0, 0, 1, 0, 0), 28, 0, None, 16),
    *(_internet(family, protocol) for family in (_IPV4, _IPV6) for protocol in (_TCP, _UDP)),
)


def in_sockets() -> int:
    """What is on its way in all sockets of this network namespace, with the sockets themselves. A kernel that does not
    tell of a kind counts as none."""
    with open("/proc/self/net/sockstat") as file:
        count = int(file.readline().split()[-1])
    return count * _SOCKET_BYTES + sum(map(_queued, _QUESTIONS)) if count > _FEW_SOCKETS else 0


def _queued(question: _Question, only: Container[int] | None = None) -> int:
    sent = received = 0
    for inode, kind, words in _attributes(question):
        if only is not None and inode not in only:
            continue
        if kind == question.queue:
            received += struct.unpack_from("I", words)[0]
        elif kind == question.memory:
            # To be read, to be sent, and sent: a local socket counts at its sender what the other has not read yet.
            to_read, _, sending, _, _, to_send = struct.unpack_from("6I", words)
            sent += sending if question.queue else to_read + to_send
    # What the sender left behind when it was closed is only known to the receiver.
    return max(sent, received)


def _attributes(question: _Question) -> Iterator[tuple[int, int, memoryview]]:
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
                (inode,) = struct.unpack_from("I", answer, at + _HEADER.size + question.inode)
                place, end = at + _HEADER.size + question.head, at + size
                while place + _ATTRIBUTE.size <= end:
                    length, name = _ATTRIBUTE.unpack_from(answer, place)
                    yield inode, name, answer[place + _ATTRIBUTE.size : place + length]
                    place += max(length + _ALIGNED & ~_ALIGNED, _ATTRIBUTE.size)
                at += max(size + _ALIGNED & ~_ALIGNED, _HEADER.size)
