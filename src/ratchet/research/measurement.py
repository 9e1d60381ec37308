"""One measurement of a commit, and what stands in the way of having one. The values that the parts hand around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ratchet.kernel import TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A finite score with how it came about. `facts` go into the record: times, memory, exit codes, layers, tails."""

    commit: str
    seed: int
    held_out: bool
    score: float
    measurements: Mapping[str, float] = field(default_factory=dict)
    wall_ms: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


class Unmeasured(Exception):
    """There is no score. `status` says why, never `keep` or `discard`; with `infra_error` it is worth another try."""

    def __init__(
        self,
        status: TrialStatus,
        reason: str,
        *,
        facts: Mapping[str, Any] | None = None,
        score: float | None = None,
        measurements: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.facts = facts or {}
        self.score = score
        self.measurements = measurements or {}


class Meter(Protocol):
    """Measures commits of one run's repository with one pinned evaluator."""

    @property
    def hash(self) -> str:
        """A SHA-256 over everything that decides a score: evaluator, data, inputs, commands, limits."""
        ...

    async def preflight(self, commit: str, base: str) -> None:
        """Raises `Unmeasured` for a commit that is not worth a measurement."""
        ...

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        """One score of a fresh checkout. Raises `Unmeasured`."""
        ...
