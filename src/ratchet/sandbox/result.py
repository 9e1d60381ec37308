"""What became of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ratchet.kernel import Missing, RatchetError


class Refused(Missing):
    """The machine does not grant the isolation that was asked for, so nothing was run."""


class CannotStart(RatchetError):
    """The work could not be started: no such program, no such directory."""


class Broken(RatchetError):
    """A process of the sandbox itself died, so nothing is known of the run."""


class Stopped(StrEnum):
    """Why the sandbox ended a run."""

    WALL = "wall"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended and what it used.

    `exit_code` or `signal` says how the command itself ended; both are `None` when the sandbox `stopped` it first.
    `cpu_ms` is that of the whole tree, `peak_bytes` the most memory seen at once. `layers` were on. `problem` says in
    words why a run is not `ok`.
    """

    exit_code: int | None
    signal: int | None
    stopped: Stopped | None
    stdout: bytes
    stderr: bytes
    wall_ms: float
    cpu_ms: float
    peak_bytes: int
    layers: tuple[str, ...]
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.stopped is None and self.problem is None

    @property
    def value(self) -> Any:
        """The JSON that a node returned. Only for one that is `ok`."""
        return json.loads(self.stdout)
