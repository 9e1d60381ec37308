"""A node's own process: what it is to do, giving up its rights, and calling the function."""

# pathlib is slow to import.
# ruff: noqa: PTH120

from __future__ import annotations

import gc
import json
import linecache
import marshal
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterable
from types import GeneratorType, ModuleType
from typing import Any, NoReturn

from . import names, rlimits, view
from .linux import (
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOSUID,
    PR_SET_PDEATHSIG,
    Prepared,
    drop_capabilities,
    mount,
    prctl,
    setns,
    unshare,
)
from .rights import node_filter, node_restriction
from .surroundings import ANSWER, NodeSurroundings

# Later versions would have each word looked up in the table of all that Python knows.
_FORMAT = 2


class Work:
    """Travels in a file that only the node reads. A plain class, since no other looks at so little when it is used."""

    def __init__(
        self,
        source: bytes,
        given: bytes,
        name: str,
        function: str,
        spread: bool,
        scratch: bool,
        readable: tuple[str, ...],
        places: tuple[tuple[str, str], ...],
        environment: dict[str, str],
        cpu_seconds: float | None,
        memory_bytes: int | None,
        file_bytes: int | None,
        cpus: tuple[int, ...],
    ) -> None:
        self.source = source
        self.given = given
        self.name = name
        self.function = function
        self.spread = spread
        self.scratch = scratch
        self.readable = readable
        self.places = places
        self.environment = environment
        self.cpu_seconds = cpu_seconds
        self.memory_bytes = memory_bytes
        self.file_bytes = file_bytes
        self.cpus = cpus

    def packed(self) -> bytes:
        # Both ends are the same Python, and to read this costs far less than to read JSON.
        return marshal.dumps(tuple(vars(self).values()), _FORMAT)

    @staticmethod
    def read(descriptor: int) -> Work:
        return Work(*marshal.loads(os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_END), 0)))


_FAILED = 1
_decoder, _encoder = json.JSONDecoder(), json.JSONEncoder(allow_nan=False)


def be_node(surroundings: NodeSurroundings, descriptor: int, stdout: int, stderr: int) -> NoReturn:
    code = _FAILED
    try:
        do_work(surroundings, descriptor, stdout, stderr)
        code = 0
    except BaseException:  # noqa: BLE001 - told on stderr; a fork must never return to the code above it
        _tell()
    finally:
        flush()
        os._exit(code)


def do_work(surroundings: NodeSurroundings, descriptor: int, stdout: int, stderr: int) -> None:
    """Do what is written behind `descriptor`, and answer to `stdout`."""
    if surroundings.parent is not None:
        _die_with(surroundings.parent)
    # Nothing is on stdin, by an open file that no other node has; what is printed goes to stderr; the answer leaves
    # by a descriptor of its own.
    os.close(0)
    os.open("/dev/null", os.O_RDONLY)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.dup2(stdout, ANSWER)
    work = Work.read(descriptor)
    _confine(surroundings, work)
    result = _result(work)
    if isinstance(result, GeneratorType):
        _write_lines(work, result)
    else:
        _write_all(_encoded(work, result))


def _die_with(parent: select.poll) -> None:
    """Also if it died before the kernel could be asked for that."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent.poll(0):
        os._exit(_FAILED)


def _confine(surroundings: NodeSurroundings, work: Work) -> None:
    layers = surroundings.layers
    restriction = surroundings.restriction
    if work.scratch or work.readable or work.places:
        restriction = _furnish(surroundings, work)
    if work.cpus:
        os.sched_setaffinity(0, work.cpus)
    own_bytes = work.memory_bytes
    rlimits.limit_run(
        open_files=surroundings.open_files,
        cpu_seconds=work.cpu_seconds,
        file_bytes=work.file_bytes,
        address_bytes=None if own_bytes is None else own_bytes + surroundings.address_bytes,
    )
    if names.CAPABILITIES in layers:
        drop_capabilities()
    if restriction is not None:
        restriction()
    os.closerange(ANSWER + 1, surroundings.most_descriptors)
    own = surroundings.scratch_filter if work.scratch else surroundings.filter
    if names.PID not in layers:
        own = node_filter(layers, os.getpid(), scratch=work.scratch)
    if own is not None:
        own.install()


def _furnish(surroundings: NodeSurroundings, work: Work) -> Prepared | None:
    """Show it more than all nodes are shown, and let it in. Returns landlock's part of what it gives up."""
    layers = surroundings.layers
    own = view.FileView(
        processes=False,
        python=surroundings.python,
        readable=work.readable,
        hidden=surroundings.hidden,
        places=work.places,
        scratch_bytes=work.memory_bytes if work.scratch else 0,
        shared_bytes=work.memory_bytes if work.scratch else 0,
    )
    if names.MOUNT in layers:
        if own.readable or own.places:
            setns(surroundings.whole_machine, CLONE_NEWNS)
            unshare(CLONE_NEWNS)
            view.build(own)
        else:
            unshare(CLONE_NEWNS)
            options = view.memory_options(work.memory_bytes)
            mount("tmpfs", view.SCRATCH[0], "tmpfs", MS_NOSUID | MS_NODEV, options)
        os.chdir(view.SCRATCH[0])
    return node_restriction(layers, own, scratch=work.scratch)


def _result(work: Work) -> Any:
    """What the function returns."""
    gc.enable()
    for variable, content in work.environment.items():
        os.environ[variable] = content
    text = work.source.decode()
    linecache.cache[work.name] = (len(text), None, text.splitlines(keepends=True), work.name)
    if work.name.startswith("/"):
        sys.path.insert(0, os.path.dirname(work.name))
    _seed()
    module = ModuleType("node")
    module.__file__ = work.name
    sys.modules["node"] = module
    exec(compile(text, work.name, "exec"), module.__dict__)
    function = module.__dict__.get(work.function)
    if not callable(function):
        raise TypeError(f"{work.name} has no function {work.function!r}")
    value = _value(work.given)
    return function(**value) if work.spread else function(value)


def _write_lines(work: Work, results: Iterable[Any]) -> None:
    """What the function yields becomes a list, with a line for each as it comes."""
    opening = b"["
    for each in results:
        _write_all(opening + _encoded(work, each) + b"\n")
        opening = b","
    _write_all(b"[]" if opening == b"[" else b"]")


def _encoded(work: Work, result: Any) -> bytes:
    try:
        return _encoder.encode(result).encode()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{work.function} returned what is not JSON: {error}") from None


def _value(given: bytes) -> Any:
    """As `json.loads` has it, which is only asked where it is needed: it looks at much more memory."""
    if not given:
        return None
    try:
        text = given.decode()
        value, end = _decoder.raw_decode(text)
    except ValueError:
        return json.loads(given)
    return value if end == len(text) else json.loads(given)


def _seed() -> None:
    """Or forks would all draw the same random numbers. Python's own generator is seeded again by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _write_all(content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(ANSWER, rest) :]


def _tell() -> None:
    try:
        traceback.print_exc()
    except BaseException:  # noqa: BLE001 - out of memory, or the node closed its stderr
        return


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - the node may have closed or replaced it
            continue
