"""What a journal writes down: one line for each thing that happened to a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.flowkit.execution import Result, StepError


@dataclass(frozen=True, slots=True)
class Began:
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Retried:
    """A try has failed and another follows."""

    name: str
    error: StepError
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Completed:
    name: str
    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    name: str
    spec: Mapping[str, Any]
    error: StepError


@dataclass(frozen=True, slots=True)
class Skipped:
    name: str
    spec: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """A step that waits for a person."""

    name: str
    spec: Mapping[str, Any]
    reason: str


Entry = Began | Retried | Completed | Failed | Skipped | Blocked
