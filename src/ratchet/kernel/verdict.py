"""What a judge says of a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's decision with its evidence. `error` means that the judge could not decide: never a pass.

    `score` is the mean of `samples`, which are the scores that were measured, in order.
    """

    outcome: Outcome
    reason: str
    judge: str
    judge_hash: str
    score: float | None = None
    measurements: Mapping[str, float] = field(default_factory=dict)
    report: str | None = None
    simulated: bool = False
    samples: tuple[float, ...] = ()

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """A verdict from the JSON that was made of it."""
        return cls(**{**data, "outcome": Outcome(data["outcome"]), "samples": tuple(data["samples"])})
