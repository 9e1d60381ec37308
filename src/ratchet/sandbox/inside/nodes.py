"""The parent of nodes: has Python and its modules loaded, stands in the sandbox already, and forks once for each node.

It holds no data of a node. The node's own process reads its work from a file that came with the order, and writes to
pipes that only passed through here.
"""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import contextlib
import gc
import heapq
import importlib
import itertools
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from . import names, namespaces, seccomp, view
from .linux import CLONE_NEWNS, CLONE_NEWPID, PR_SET_PDEATHSIG, forgo_capabilities, prctl, setns, unshare
from .node import Surroundings, be_node

# An order is the wall seconds; everything else about a node only its own process is told.
ORDER = struct.Struct("d")
_SINGLE_THREADED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Settings(NamedTuple):
    layers: list[str]
    python: list[str]
    path: list[str]
    modules: list[str]
    hidden: list[tuple[str, str]]


class _Node(NamedTuple):
    number: int
    pid: int
    life: int
    line: socket.socket
    began: float


def serve(orders: socket.socket, settings: Settings) -> NoReturn:
    """Fork a node for each order until the other end is closed; then end, and every node with it."""
    try:
        _load(settings)
        nodes = Nodes(orders, _enter(settings))
    except Exception as error:  # noqa: BLE001 - told to Ratchet, which raises it where a node was asked for
        orders.send(f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    while True:
        nodes.turn()


def _load(settings: Settings) -> None:
    """Import everything once, and use it once, so that no node pays for it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.path += settings.path
    # A thread pool in each of many nodes would only make them wait for each other.
    os.environ.update(dict.fromkeys(_SINGLE_THREADED, "1"))
    for name in settings.modules:
        importlib.import_module(name)
    os.environ.clear()
    exec(compile("def run(value):\n    return [value]\nrun(1)", "warm", "exec"), {})
    json.loads(json.dumps({"warm": [1, 2.5, None]}))


def _enter(settings: Settings) -> Surroundings:
    """Stand where the nodes will stand."""
    layers = settings.layers
    nothing = os.open("/dev/null", os.O_RDONLY)
    namespaces.enter(layers)
    if names.CAPABILITIES in layers:
        forgo_capabilities()
    if names.PID in layers:
        _become_first()
    own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY)
    whole_machine = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    address_bytes = _address_bytes()
    python, hidden = tuple(settings.python), tuple(settings.hidden)
    if names.MOUNT in layers:
        unshare(CLONE_NEWNS)
        view.build(view.View(processes=False, python=python, hidden=hidden))
    return Surroundings(
        layers=layers,
        python=python,
        hidden=hidden,
        address_bytes=address_bytes,
        filter=seccomp.node_filter(1) if names.SECCOMP in layers else None,
        nothing=nothing,
        own_pids=own_pids,
        whole_machine=whole_machine,
        life=os.pipe(),
    )


def _become_first() -> None:
    """Go on as the first process of the pid namespace: whatever ends that one, the kernel ends all nodes with it."""
    child = os.fork()
    if child:
        # An end that was held here too would hide that the child has died.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        os.waitpid(child, 0)
        os._exit(0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Nodes:
    """The nodes that are running, by number, by the descriptor of their life and by that of their line."""

    def __init__(self, orders: socket.socket, surroundings: Surroundings) -> None:
        self._orders = orders
        self._surroundings = surroundings
        self._numbers = itertools.count()
        self._running: dict[int, _Node] = {}
        self._by_life: dict[int, _Node] = {}
        self._by_line: dict[int, _Node] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._stopped: dict[int, str] = {}
        self._epoll = select.epoll()
        self._epoll.register(orders.fileno(), select.EPOLLIN)
        gc.collect()
        gc.disable()
        # What is here already is never looked at by a node's collector, so its pages stay shared.
        gc.freeze()

    def turn(self) -> None:
        """Wait for something to happen, and attend to it."""
        timeout = max(0.0, self._deadlines[0][0] - time.monotonic()) if self._deadlines else None
        ordered = False
        for descriptor, _ in self._epoll.poll(timeout):
            if descriptor in self._by_life:
                self._finish(self._by_life[descriptor])
            elif descriptor in self._by_line:
                self._stop(self._by_line[descriptor], "cancelled")
            elif descriptor == self._orders.fileno():
                ordered = True
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heapq.heappop(self._deadlines)
            if number in self._running:
                self._stop(self._running[number], "wall")
        if ordered:
            # Last: a new node gets numbers of descriptors that were just closed, which events above may speak of.
            self._take()

    def _take(self) -> None:
        order, descriptors, _, _ = socket.recv_fds(self._orders, 64, 4, socket.MSG_CMSG_CLOEXEC)
        if not order:
            os._exit(0)
        (wall_seconds,) = ORDER.unpack(order)
        work, stdout, stderr, line = descriptors
        began = time.monotonic()
        try:
            pid = self._fork(work, stdout, stderr)
        except OSError as error:
            _tell(socket.socket(fileno=line), {"refused": f"no process for a node: {error.strerror}"})
        else:
            node = _Node(next(self._numbers), pid, os.pidfd_open(pid), socket.socket(fileno=line), began)
            self._running[node.number] = self._by_life[node.life] = self._by_line[line] = node
            self._epoll.register(node.life, select.EPOLLIN)
            self._epoll.register(line, select.EPOLLIN)
            heapq.heappush(self._deadlines, (began + wall_seconds, node.number))
        for descriptor in (work, stdout, stderr):
            os.close(descriptor)

    def _fork(self, work: int, stdout: int, stderr: int) -> int:
        if names.PID in self._surroundings.layers:
            # Only from its own namespace may a process ask for a new one for its next child.
            setns(self._surroundings.own_pids, CLONE_NEWPID)
            unshare(CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            be_node(self._surroundings, work, stdout, stderr)
        return pid

    def _stop(self, node: _Node, reason: str) -> None:
        if node.number not in self._stopped:
            self._stopped[node.number] = reason
            self._epoll.unregister(node.line.fileno())
            signal.pidfd_send_signal(node.life, signal.SIGKILL)

    def _finish(self, node: _Node) -> None:
        _, status, used = os.wait4(node.pid, 0)
        stopped = self._stopped.pop(node.number, None)
        report = {
            "status": None if stopped else status,
            "stopped": stopped,
            "wall_ms": (time.monotonic() - node.began) * 1000,
            "cpu_ms": (used.ru_utime + used.ru_stime) * 1000,
            "peak_bytes": used.ru_maxrss * 1024,
        }
        # Forks that have not yet closed them keep both open, and the kernel would go on telling of them.
        self._epoll.unregister(node.life)
        if not stopped:
            self._epoll.unregister(node.line.fileno())
        del self._running[node.number], self._by_life[node.life], self._by_line[node.line.fileno()]
        os.close(node.life)
        _tell(node.line, report)


def _tell(line: socket.socket, report: Mapping[str, object]) -> None:
    with line, contextlib.suppress(OSError):  # nobody may be left who wants to know
        line.send(json.dumps(report).encode())


def _address_bytes() -> int:
    """How much address space this process has, which every node has from the start."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
