"""The warm parent: a bare process with nothing of our environment, started once, from which launchers are forked.

One that has modules loaded is for commands that are functions of those: they begin at once and share its memory.

It never sees what it starts: a command's description comes in a file of its own that only the fork reads, so no run
finds anything of another one in the memory it inherits. It ends when Ratchet's end of the socket is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from . import cgroup, seccomp
from .launch import launch
from .nodes import serve
from .spec import CommandSpec
from .surroundings import NodeSettings

COMMAND, NODES = b"c", b"n"
_MOST_DESCRIPTORS = 5
_BARE_ARGUMENTS = 3
_MOST_WORDS = 4000


def main() -> NoReturn:
    """Serve the socket whose number is the last argument. What to load is the one before, as JSON."""
    # Launchers are nobody's to wait for: each tells over a line of its own how it went.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[-1]))
    if seccomp.known():
        for nested in (False, True):
            seccomp.command_filter(nested=nested, internet=True, bound=False, sharing=True, watching=True)
    delegation = cgroup.prepare()
    if len(sys.argv) > _BARE_ARGUMENTS:
        try:
            _load(**json.loads(sys.argv[-2]))
        except BaseException as error:  # noqa: BLE001 - told to Ratchet, which raises it where a command is asked for
            orders.send(f"{type(error).__name__}: {error}"[:_MOST_WORDS].encode(errors="replace"))
            os._exit(1)
    gc.collect()
    gc.disable()
    # What is here already is never looked at by a fork's collector, so its pages stay shared.
    gc.freeze()
    while True:
        kind, descriptors, _, _ = socket.recv_fds(orders, 16, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not kind:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            if kind == COMMAND:
                _separate(_command, delegation, *descriptors)
            _separate(_nodes, *descriptors)
        for number in descriptors:
            os.close(number)


def _load(path: list[str], modules: list[str], prepare: str) -> None:
    sys.path += path
    for name in modules:
        importlib.import_module(name)
    module, _, function = prepare.rpartition(".")
    getattr(sys.modules[module], function)()


def _separate(work: Callable[..., None], *given: Any) -> NoReturn:
    """Do `work` and end, whatever happens: a fork must never return to the code above it."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work(*given)
    except BaseException:  # noqa: BLE001 - the line that closes without a report tells that something was wrong
        traceback.print_exc()
    finally:
        os._exit(1)


def _command(
    delegation: cgroup.Delegation | None, description: int, stdin: int, stdout: int, stderr: int, line: int
) -> None:
    with os.fdopen(description, "rb") as file:
        spec = CommandSpec.from_json(file.read())
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    told = launch(spec, line, delegation)
    if told is not None:
        socket.socket(fileno=line).send(f"{json.dumps(told)}\n".encode())
    os._exit(0)


def _nodes(description: int, orders: int) -> None:
    with os.fdopen(description, "rb") as file:
        settings = json.loads(file.read())
    serve(socket.socket(fileno=orders), NodeSettings(**settings))
