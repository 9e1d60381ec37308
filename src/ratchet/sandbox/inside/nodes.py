"""The parent of nodes: has Python and its modules loaded, stands in the sandbox already, and forks once for each node.

It holds no data of a node. The node's own process reads its work from a file that came with the order, and writes to
pipes that only passed through here. After each fork it pays for every page that it writes to, so it makes few objects.
"""

from __future__ import annotations

import gc
import importlib
import json
import linecache
import math
import os
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import time
from typing import NoReturn

from . import names
from .kernel_memory import bytes_of_node
from .linux import CLONE_NEWPID, Prepared, libc
from .node import Work, be_node, do_work, flush
from .spec import NODE_LOOK_SECONDS
from .surroundings import ANSWER, NodeSettings, NodeSurroundings, enter, set_apart

_WORK = Work(
    source=b"X = 1\n\n\ndef run(given):\n    return [given, X, 'x', 1.5, None]\n",
    given=b'{"x": [1, 2.5, null, "x"]}',
    name="practice.py",
    function="run",
    spread=False,
    scratch=False,
    readable=(),
    places=(),
    environment={"PRACTICE": "x"},
    cpu_seconds=None,
    memory_bytes=None,
    file_bytes=None,
    cpus=(),
)
# Enough for every version of Python to take it for hot.
_TIMES = 64


def practise() -> None:
    """Do in the parent what every node does, without giving anything up and without leaving a trace."""
    descriptor = os.memfd_create("practice")
    os.write(descriptor, _WORK.packed())
    unconfined = NodeSurroundings(
        layers=frozenset(),
        python=(),
        hidden=(),
        address_bytes=0,
        open_files=os.sysconf("SC_OPEN_MAX"),
        most_descriptors=ANSWER + 1,
        filter=None,
        scratch_filter=None,
        restriction=None,
        parent=None,
        own_pids=-1,
        whole_machine=-1,
    )
    for _ in range(_TIMES):
        do_work(unconfined, descriptor, ANSWER, 2)
        flush()
    os.close(descriptor)
    gc.disable()
    for name in _WORK.environment:
        del os.environ[name]
    del linecache.cache[_WORK.name]
    del sys.modules["node"]


# An order is the wall seconds and the bytes of memory; everything else about a node only its own process is told.
ORDER = struct.Struct("2d")
# Work, stdout, stderr and line.
_DESCRIPTORS = struct.Struct("4i")
# Python makes room for all of them each time.
_MOST_EVENTS = 64
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Node:
    """`life` has something to tell when it has ended, `line` when it is to end. Its end is told over `line`."""

    __slots__ = ("began", "deadline", "life", "line", "most_bytes", "pid", "stopped")

    def __init__(
        self, pid: int, life: int, line: int, began: float, deadline: float, most_bytes: float
    ) -> None:
        self.pid = pid
        self.life = life
        self.line = line
        self.began = began
        self.deadline = deadline
        self.most_bytes = most_bytes
        self.stopped: str | None = None


def serve(orders: socket.socket, settings: NodeSettings) -> NoReturn:
    """Fork a node for each order until the other end is closed; then end, and every node with it."""
    orders = socket.socket(fileno=set_apart(orders.detach()))
    try:
        _load(settings)
        proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        nodes = Nodes(orders, enter(settings), proc)
    except Exception as error:  # noqa: BLE001 - told to Ratchet, which raises it where a node was asked for
        orders.send(f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    while True:
        nodes.turn()


def _load(settings: NodeSettings) -> None:
    """Import everything once, and use it once, so that no node pays for it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    practise()
    sys.path += settings.path
    # Nodes have no epoll, whose watches are memory that is not counted.
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    # A thread pool in each of many nodes would only make them wait for each other.
    os.environ.update(dict.fromkeys(_SINGLE_THREADED, "1"))
    for name in settings.modules:
        importlib.import_module(name)
    os.environ.clear()


class Nodes:
    """The nodes that are running, each by the descriptors of its life and of its line."""

    def __init__(self, orders: socket.socket, surroundings: NodeSurroundings, proc: int) -> None:
        """`proc` is a descriptor of the machine's /proc, which nodes do not see."""
        self._orders = orders
        self._orders_descriptor = orders.fileno()
        self._surroundings = surroundings
        self._running: dict[int, _Node] = {}
        # No node that is running has an earlier one.
        self._first_deadline = math.inf
        self._proc = proc
        self._next_look = math.inf
        self._epoll = select.epoll()
        self._epoll.register(self._orders_descriptor, select.EPOLLIN)
        self._own_pid_namespace: tuple[Prepared, ...] = ()
        if names.PID in surroundings.layers:
            # Only from its own namespace may a process ask for a new one for its next child.
            self._own_pid_namespace = (
                Prepared("setns", libc.setns, surroundings.own_pids, CLONE_NEWPID),
                Prepared("unshare", libc.unshare, CLONE_NEWPID),
            )
        gc.collect()
        gc.disable()
        # What is here already is never looked at by a node's collector, so its pages stay shared.
        gc.freeze()

    def turn(self) -> None:
        """Wait for something to happen, and attend to it."""
        timeout = None
        if self._first_deadline != math.inf:
            timeout = max(0.0, min(self._first_deadline, self._next_look) - time.monotonic())
        ordered = False
        for descriptor, _ in self._epoll.poll(timeout, _MOST_EVENTS):
            node = self._running.get(descriptor)
            if node is None:
                ordered = ordered or descriptor == self._orders_descriptor
            elif descriptor == node.life:
                self._finish(node)
            else:
                self._stop(node, "cancelled")
        if time.monotonic() >= self._first_deadline:
            self._stop_late()
        if time.monotonic() >= self._next_look:
            self._look()
        if ordered:
            # Last: a new node gets numbers of descriptors that were just closed, which events above may speak of.
            self._take()

    def _take(self) -> None:
        order, ancillary, _, _ = self._orders.recvmsg(
            ORDER.size, socket.CMSG_SPACE(_DESCRIPTORS.size), socket.MSG_CMSG_CLOEXEC
        )
        if not order:
            os._exit(0)
        wall_seconds, most_bytes = ORDER.unpack(order)
        work, stdout, stderr, line = _DESCRIPTORS.unpack(ancillary[0][2])
        began = time.monotonic()
        try:
            pid = self._fork(work, stdout, stderr)
        except OSError as error:
            _tell(line, json.dumps({"refused": f"no process for a node: {error.strerror}"}))
        else:
            node = _Node(pid, os.pidfd_open(pid), line, began, began + wall_seconds, most_bytes)
            self._running[node.life] = self._running[line] = node
            self._epoll.register(node.life, select.EPOLLIN)
            self._epoll.register(line, select.EPOLLIN)
            self._first_deadline = min(self._first_deadline, node.deadline)
            self._next_look = min(self._next_look, began + NODE_LOOK_SECONDS)
        os.close(work)
        os.close(stdout)
        os.close(stderr)

    def _fork(self, work: int, stdout: int, stderr: int) -> int:
        for call in self._own_pid_namespace:
            call()
        pid = os.fork()
        if pid == 0:
            be_node(self._surroundings, work, stdout, stderr)
        return pid

    def _stop_late(self) -> None:
        now = time.monotonic()
        waiting = math.inf
        for node in self._running.values():
            if node.deadline <= now:
                self._stop(node, "wall")
            else:
                waiting = min(waiting, node.deadline)
        self._first_deadline = waiting

    def _look(self) -> None:
        """Stop nodes for which the kernel holds too much that is not among their addresses."""
        for number, node in self._running.items():
            if number == node.life and bytes_of_node(self._proc, node.life) > node.most_bytes:
                self._stop(node, "memory")
        self._next_look = time.monotonic() + NODE_LOOK_SECONDS if self._running else math.inf

    def _stop(self, node: _Node, reason: str) -> None:
        if node.stopped is None:
            node.stopped = reason
            self._epoll.unregister(node.line)
            signal.pidfd_send_signal(node.life, signal.SIGKILL)

    def _finish(self, node: _Node) -> None:
        _, status, used = os.wait4(node.pid, 0)
        stopped = node.stopped
        # Forks that have not yet closed them keep both open, and the kernel would keep telling of them.
        self._epoll.unregister(node.life)
        if stopped is None:
            self._epoll.unregister(node.line)
        del self._running[node.life], self._running[node.line]
        os.close(node.life)
        wall_ms = (time.monotonic() - node.began) * 1000
        cpu_ms = (used.ru_utime + used.ru_stime) * 1000
        ended = (
            f'"status": {status}, "stopped": null'
            if stopped is None
            else f'"status": null, "stopped": "{stopped}"'
        )
        _tell(
            node.line,
            f'{{{ended}, "wall_ms": {wall_ms}, "cpu_ms": {cpu_ms}, "peak_bytes": {used.ru_maxrss * 1024}}}',
        )


def _tell(line: int, report: str) -> None:
    try:
        os.write(line, f"{report}\n".encode())
    except OSError:
        return  # nobody is left who wants to know
    finally:
        os.close(line)
