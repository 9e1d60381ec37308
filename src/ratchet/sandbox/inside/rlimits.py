"""Limits that the kernel keeps for each process."""

from __future__ import annotations

import math
import resource

_OPEN_FILES = 4096
# What its pipes and sockets can hold is not memory of a node, so it may have few.
_OPEN_FILES_OF_NODES = 128
# Signals and timers that wait, of which each user has only so many.
_PENDING = 4096


def open_files() -> int:
    """How many a run may have open. The kernel adds up the descriptors of a user that were sent and not yet received,
    and lets none send more whose own limit they pass: `keep_room` keeps ours well above that of any run."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard // 2)


def open_files_of_node() -> int:
    return min(open_files(), _OPEN_FILES_OF_NODES)


def keep_room() -> None:
    """Let this process have and send more descriptors than all runs together can keep on their way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, 4 * _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit(
    *,
    cpu_seconds: float | None,
    file_bytes: int | None,
    address_bytes: int | None = None,
    data_bytes: int | None = None,
    tasks: int | None = None,
) -> None:
    """Lower the limits of this process and of all it starts. A limit is never raised."""
    limit_always()
    limit_run(
        open_files=open_files(), cpu_seconds=cpu_seconds, file_bytes=file_bytes, address_bytes=address_bytes
    )
    if data_bytes is not None:
        _lower(resource.RLIMIT_DATA, data_bytes)
    if tasks is not None:
        _lower(resource.RLIMIT_NPROC, tasks)


def limit_always() -> None:
    """The limits that are the same for every run, and that a parent of runs can live with as well."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_MEMLOCK, 8 * 1024 * 1024)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    _lower(resource.RLIMIT_SIGPENDING, _PENDING)


def limit_run(
    *, open_files: int, cpu_seconds: float | None, file_bytes: int | None, address_bytes: int | None
) -> None:
    """Those that are not."""
    _lower(resource.RLIMIT_NOFILE, open_files)
    if cpu_seconds is not None:
        _lower(resource.RLIMIT_CPU, math.ceil(cpu_seconds))
    if file_bytes is not None:
        _lower(resource.RLIMIT_FSIZE, file_bytes)
    if address_bytes is not None:
        _lower(resource.RLIMIT_AS, address_bytes)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (most, most))
