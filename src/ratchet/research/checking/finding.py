"""What a check came to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Part(StrEnum):
    """What was looked at: the task itself, what it does to a hostile recipe, or Ratchet with something broken."""

    TASK = "task"
    ATTACK = "attack"
    EVALUATOR = "evaluator"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `expected` and `seen` are told of attacks and faults."""

    part: Part
    what: str
    grade: Grade
    detail: str
    hint: str = ""
    expected: str = ""
    seen: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


Hear = Callable[[Finding], None]
"""Told of each finding as soon as there is one."""


class Stopwatch:
    """Counts the seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
