"""Practice, before there are nodes.

The first time that Python does something it looks up names, chooses short cuts and writes all that down. In a fork that
is always the first time, and nearly every note costs it a copy of a page of memory.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys

from .node import do_work, flush
from .surroundings import ANSWER, Surroundings
from .work import Work

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
    unconfined = Surroundings(
        layers=frozenset(),
        python=(),
        hidden=(),
        address_bytes=0,
        open_files=os.sysconf("SC_OPEN_MAX"),
        most_descriptors=ANSWER + 1,
        filter=None,
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
