"""Kinds of jobs for the tests. They speak through files, so that any process can do them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from ratchet.runtime import JobContext, Kinds


def mark(path: str, line: str) -> None:
    """Append a line in one write, which other processes cannot tear."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (line + "\n").encode())
    finally:
        os.close(descriptor)


def marks(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def note(job: JobContext) -> Any:
    """Say that it started, and when."""
    mark(job.payload["file"], f"{job.job.id}:{time.time()}")
    return job.payload.get("value")


async def spell(job: JobContext) -> Any:
    """Say start and end with a pause in between."""
    mark(job.payload["file"], f"start:{job.job.id}:{job.process_id}")
    await asyncio.sleep(job.payload["seconds"])
    mark(job.payload["file"], f"end:{job.job.id}:{job.process_id}")
    return "rested"


def plain_spell(job: JobContext) -> Any:
    """The same as a plain function, which looks for a stop by itself."""
    mark(job.payload["file"], f"start:{job.job.id}:{job.process_id}")
    if job.wait(job.payload["seconds"]):
        mark(job.payload["file"], f"stopped:{job.job.id}:{job.process_id}")
        return None
    mark(job.payload["file"], f"end:{job.job.id}:{job.process_id}")
    return "rested"


def deaf(job: JobContext) -> Any:
    """A plain function that never looks for a stop."""
    time.sleep(job.payload["seconds"])
    return "late"


async def flaky(job: JobContext) -> Any:
    if job.job.attempt <= job.payload["failures"]:
        raise ValueError(f"try {job.job.attempt} fails")
    return job.job.attempt


async def unstorable(_: JobContext) -> Any:
    return object()


async def not_a_number(_: JobContext) -> Any:
    return float("nan")


async def huge(_: JobContext) -> Any:
    return "x" * 2_000_000


async def leaving(_: JobContext) -> Any:
    sys.exit(3)


async def dying(job: JobContext) -> Any:
    """Take the whole process along."""
    mark(job.payload["file"], str(os.getpid()))
    os._exit(9)


async def climb(job: JobContext) -> Any:
    """The flow of the loop's tests; see `tests.loop.flow`."""
    from tests.loop.flow import climb as real

    return await real(job)


ALL = (note, spell, plain_spell, deaf, flaky, unstorable, not_a_number, huge, leaving, dying, climb)


def make_kinds() -> Kinds:
    kinds = Kinds()
    for handler in ALL:
        kinds.add(handler.__name__, handler)
    return kinds
