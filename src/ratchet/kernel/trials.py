"""What becomes of a trial, and which way a score is better."""

from __future__ import annotations

from enum import StrEnum


class Direction(StrEnum):
    MIN = "min"
    MAX = "max"

    def gain(self, score: float, other: float) -> float:
        """How much better `score` is than `other`; below zero when it is worse."""
        return score - other if self is Direction.MAX else other - score


class TrialStatus(StrEnum):
    """How a trial ended. One that has not ended has none of these."""

    BASELINE = "baseline"
    KEEP = "keep"
    DISCARD = "discard"
    CRASH = "crash"
    PREFLIGHT_CRASH = "preflight_crash"
    SIZE_BLOCKED = "size_blocked"
    TRAIN_BUDGET_OVERRUN = "train_budget_overrun"
    EVAL_BUDGET_OVERRUN = "eval_budget_overrun"
    DISQUALIFIED = "disqualified"
    INFRA_ERROR = "infra_error"
    # Only in imported histories: a row that was taken out after the fact.
    HARNESS_ABORT = "harness_abort"

    @property
    def valid(self) -> bool:
        """Whether the evaluator accepted it, so that its score may be compared."""
        return self in (TrialStatus.BASELINE, TrialStatus.KEEP, TrialStatus.DISCARD)

    @property
    def tried(self) -> bool:
        """Whether it tells anything about the idea, so that agents may be shown it and the budget counts it."""
        return self not in (TrialStatus.INFRA_ERROR, TrialStatus.HARNESS_ABORT)


def exp_id(number: int) -> str:
    """How a trial is called where people read: at least three digits, 000 being the baseline."""
    return f"{number:03}"
