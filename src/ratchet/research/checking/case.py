"""A task while it is looked at, and what one look saw."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ratchet.research.checking.bench import Bench
from ratchet.research.checking.finding import Grade
from ratchet.research.measurement import Measurement


class Seen(NamedTuple):
    detail: str
    grade: Grade = Grade.OK
    hint: str = ""


@dataclass(slots=True)
class Case:
    """`samples` are measurements of the baseline, the first of them with the first seed."""

    bench: Bench
    samples: list[Measurement] = field(default_factory=list)


Look = Callable[[Case], Awaitable[Seen]]


def warned(detail: str, hint: str) -> Seen:
    return Seen(detail, Grade.WARNING, hint)


def failed(detail: str, hint: str) -> Seen:
    return Seen(detail, Grade.FAILED, hint)
