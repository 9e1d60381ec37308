"""Who asks whom, for which run, and where the one who is asked sits."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.engines import Engine
from ratchet.runtime import JobContext


@dataclass(frozen=True, slots=True)
class Room:
    """Where an engine that works with files sits. What it leaves there is no part of its answer."""

    workspace: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()


@contextlib.asynccontextmanager
async def empty_room() -> AsyncIterator[Room]:
    with tempfile.TemporaryDirectory(prefix="ratchet-asked-") as directory:
        yield Room(Path(directory))


@dataclass(frozen=True, slots=True)
class Asker:
    """`repairs` is how often a bad answer is sent back, and `passed` is told how far it has come."""

    job: JobContext
    engine: Engine
    repairs: int
    model: str | None = None
    deadline_seconds: float | None = None
    room: Callable[[], AbstractAsyncContextManager[Room]] = empty_room
    passed: Callable[[str], None] = lambda _: None
