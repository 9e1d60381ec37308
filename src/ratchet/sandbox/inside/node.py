"""A node's own process: gives up its rights, then calls the function."""

# pathlib is slow to import.
# ruff: noqa: PTH117, PTH120
from __future__ import annotations

import gc
import json
import linecache
import os
import select
import signal
import sys
import traceback
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from . import names, seccomp, view
from .linux import (
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOSUID,
    PR_SET_PDEATHSIG,
    mount,
    prctl,
    setns,
    unshare,
)
from .rights import NodeLimits, give_up_for_node

_FAILED = 1
_ANSWER = 3


class Surroundings(NamedTuple):
    """What every node of one parent has in common."""

    layers: list[str]
    python: tuple[str, ...]
    hidden: tuple[tuple[str, str], ...]
    # The address space that each has from the start.
    address_bytes: int
    filter: seccomp.Filter | None
    # Descriptors: of nothing, of the parent's pid namespace, of a mount namespace that shows the whole machine, and
    # of a pipe whose other end only the parent holds.
    nothing: int
    own_pids: int
    whole_machine: int
    life: tuple[int, int]


class Work(NamedTuple):
    """The head of the file that a node reads; the source and the input follow it."""

    source_bytes: int
    name: str
    function: str
    spread: bool
    scratch: bool
    readable: list[str]
    places: list[tuple[str, str]]
    environment: dict[str, str]
    cpu_seconds: float | None
    memory_bytes: int | None
    file_bytes: int | None
    cpus: list[int]

    @property
    def own_view(self) -> bool:
        """Whether it is shown more than all nodes are."""
        return bool(self.readable or self.places)


def be_node(surroundings: Surroundings, work: int, stdout: int, stderr: int) -> NoReturn:
    code = _FAILED
    try:
        _die_with_parent(surroundings.life)
        head, source, given = _read(work)
        _arrange_descriptors(surroundings, head, stdout, stderr)
        _confine(surroundings, head)
        _write_all(_answer(head, source, given))
        code = 0
    except BaseException:  # noqa: BLE001 - told on stderr; a fork must never return to the code above it
        _tell()
    finally:
        _flush()
        os._exit(code)


def _die_with_parent(life: tuple[int, int]) -> None:
    """Also if it died before the kernel could be asked for that."""
    listen, parents = life
    os.close(parents)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([listen], [], [], 0)[0]:
        os._exit(_FAILED)


def _read(work: int) -> tuple[Work, bytes, bytes]:
    with os.fdopen(work, "rb") as file:
        head = Work(**json.loads(file.readline()))
        return head, file.read(head.source_bytes), file.read()


def _arrange_descriptors(surroundings: Surroundings, head: Work, stdout: int, stderr: int) -> None:
    """Nothing on stdin; what is printed goes to stderr; the answer leaves by a descriptor of its own."""
    if head.own_view and names.MOUNT in surroundings.layers:
        setns(surroundings.whole_machine, CLONE_NEWNS)
    wanted = (surroundings.nothing, stderr, stderr, stdout)
    # First out of the way of each other, then to where they belong.
    spare = max(wanted) + len(wanted)
    for number, descriptor in enumerate(wanted):
        os.dup2(descriptor, spare + number)
    for number in range(len(wanted)):
        os.dup2(spare + number, number)
    os.closerange(_ANSWER + 1, os.sysconf("SC_OPEN_MAX"))


def _confine(surroundings: Surroundings, head: Work) -> None:
    layers = surroundings.layers
    own_view = view.View(
        processes=False,
        python=surroundings.python,
        readable=tuple(head.readable),
        hidden=surroundings.hidden,
        places=tuple(head.places),
        scratch_bytes=head.memory_bytes if head.scratch else 0,
    )
    if names.MOUNT in layers and (head.own_view or head.scratch):
        unshare(CLONE_NEWNS)
        if head.own_view:
            view.build(own_view)
        else:
            size = f"size={head.memory_bytes}" if head.memory_bytes else ""
            mount("tmpfs", view.SCRATCH[0], "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,{size}")
    os.chdir(view.SCRATCH[0] if names.MOUNT in layers else "/")
    if head.cpus:
        os.sched_setaffinity(0, head.cpus)
    memory_bytes = None if head.memory_bytes is None else head.memory_bytes + surroundings.address_bytes
    limits = NodeLimits(head.cpu_seconds, head.file_bytes, memory_bytes)
    own_filter = surroundings.filter
    if own_filter is not None and names.PID not in layers:
        own_filter = seccomp.node_filter(os.getpid())
    give_up_for_node(layers, own_view, limits, own_filter, scratch=head.scratch)


def _answer(head: Work, source: bytes, given: bytes) -> bytes:
    """What the function returns, as JSON."""
    gc.enable()
    os.environ.update(head.environment)
    text = source.decode()
    linecache.cache[head.name] = (len(text), None, text.splitlines(keepends=True), head.name)
    if os.path.isabs(head.name):
        sys.path.insert(0, os.path.dirname(head.name))
    _seed()
    module = ModuleType("node")
    module.__file__ = head.name
    sys.modules["node"] = module
    exec(compile(text, head.name, "exec"), module.__dict__)
    function = module.__dict__.get(head.function)
    if not callable(function):
        raise TypeError(f"{head.name} has no function {head.function!r}")
    value: Any = json.loads(given) if given else None
    result = function(**value) if head.spread else function(value)
    try:
        return json.dumps(result, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{head.function} returned what is not JSON: {error}") from None


def _seed() -> None:
    """Or forks would all draw the same random numbers. Python's own generator is seeded anew by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _write_all(content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(_ANSWER, rest) :]


def _tell() -> None:
    try:
        traceback.print_exc()
    except BaseException:  # noqa: BLE001 - out of memory, or the node closed its stderr
        return


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - the node may have closed or replaced it
            continue
