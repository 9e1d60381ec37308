"""Function tools for tests: they leave marks in files, so that any process can do them and every call is seen."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from ratchet.tools.call import Occasion
from tests.runtime.kinds import mark as write_mark
from tests.runtime.kinds import marks


def mark(file: str, name: str, value: Any = None) -> Any:
    """Say that it was called, and by which process."""
    write_mark(file, f"{name}:{os.getpid()}")
    return value


async def mark_slowly(file: str, name: str, seconds: float = 0.3) -> str:
    write_mark(file, f"{name}:{os.getpid()}")
    await asyncio.sleep(seconds)
    return name


def mark_and_die(file: str, name: str, only: str | None = None) -> str:
    """The first time it takes the whole process along."""
    seen = any(line.startswith(f"{name}:") for line in marks(Path(file)))
    write_mark(file, f"{name}:{os.getpid()}")
    if not seen and only in (None, name):
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def mark_or_die(file: str, last: int | None, dies_at: int) -> int:
    """One more than the last; in the one round it takes the whole process along, the first time."""
    number = last or 0
    seen = any(line.startswith(f"{number}:") for line in marks(Path(file)))
    write_mark(file, f"{number}:{os.getpid()}")
    if number == dies_at and not seen:
        os.kill(os.getpid(), signal.SIGKILL)
    return number + 1


async def speak(file: str, lines: list[str], *, occasion: Occasion) -> list[str]:
    """Says one line after the other, and waits after each until that has left its mark."""
    for line in lines:
        if occasion.give_line is not None:
            occasion.give_line(line)
        while not any(each.startswith(f"{line}:") for each in marks(Path(file))):  # noqa: ASYNC110  a file has no event
            await asyncio.sleep(0.01)
    return lines


def fail_twice(file: str, name: str) -> str:
    write_mark(file, f"{name}:{os.getpid()}")
    if len(marks(Path(file))) < 3:
        raise ValueError("not yet")
    return name
