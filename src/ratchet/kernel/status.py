"""The statuses of runs, steps and trials, which changes are legal, and what a judge says of a candidate.

A status that maps to nothing is final: nothing revives it. Only `ratchet.ledger.statuses` writes statuses, and it
asks `check_transition` first.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NewType, Protocol, Self, TypeVar, runtime_checkable

from ratchet.kernel.errors import IllegalTransition


def iso(milliseconds: int) -> str:
    """Whole milliseconds since 1970 as `2026-07-31T20:11:44.123Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


ProjectId = NewType("ProjectId", int)
RunId = NewType("RunId", int)
StepId = NewType("StepId", int)
AttemptId = NewType("AttemptId", int)
JobId = NewType("JobId", int)
EventId = NewType("EventId", int)

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?", re.ASCII)


def new_id(prefix: str) -> str:
    """A short random id that nothing else has, such as `worker-5f1c09a2d3b4`."""
    return f"{prefix}-{secrets.token_hex(6)}"


def is_name(text: str) -> bool:
    """Whether `text` may name a thing: it is safe as a path segment, a branch and a URL part."""
    return _NAME.fullmatch(text) is not None and ".." not in text


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


class RunStatus(StrEnum):
    PENDING = "pending"
    PLANNING = "planning"
    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    BLOCKED = "blocked"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPLETED = "completed"

    @property
    def final(self) -> bool:
        return not RUN_TRANSITIONS[self]

    @property
    def stands(self) -> bool:
        """Whether nothing happens any more by itself: it has ended, or waits for somebody."""
        return self.final or self in (RunStatus.PAUSED, RunStatus.BLOCKED)


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    NEEDS_QA = "needs_qa"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"

    @property
    def final(self) -> bool:
        return not STEP_TRANSITIONS[self]


_R, _S = RunStatus, StepStatus
_STOPPED = frozenset({_R.PAUSED, _R.BLOCKED, _R.FAILED, _R.CANCELLED})

RUN_TRANSITIONS: Mapping[RunStatus, frozenset[RunStatus]] = MappingProxyType(
    {
        # A flow that has nothing to plan goes straight to running.
        _R.PENDING: _STOPPED | {_R.PLANNING, _R.RUNNING},
        _R.PLANNING: _STOPPED | {_R.PLANNED},
        _R.PLANNED: _STOPPED | {_R.PLANNING, _R.RUNNING},
        _R.RUNNING: _STOPPED | {_R.COMPLETED},
        _R.PAUSED: frozenset({_R.PLANNING, _R.RUNNING, _R.BLOCKED, _R.FAILED, _R.CANCELLED}),
        _R.BLOCKED: frozenset({_R.PLANNING, _R.RUNNING, _R.PAUSED, _R.FAILED, _R.CANCELLED}),
        _R.FAILED: frozenset(),
        _R.CANCELLED: frozenset(),
        _R.COMPLETED: frozenset(),
    }
)

STEP_TRANSITIONS: Mapping[StepStatus, frozenset[StepStatus]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.RUNNING, _S.BLOCKED, _S.CANCELLED}),
        # Straight to completed is for steps whose judge is the step itself: there is no separate QA to wait for.
        _S.RUNNING: frozenset({_S.NEEDS_QA, _S.COMPLETED, _S.FAILED, _S.BLOCKED, _S.CANCELLED}),
        _S.NEEDS_QA: frozenset({_S.COMPLETED, _S.FAILED, _S.BLOCKED, _S.CANCELLED}),
        # A failed or blocked step may be tried again: by hand at once, or queued again.
        _S.FAILED: frozenset({_S.PENDING, _S.RUNNING, _S.BLOCKED, _S.CANCELLED}),
        _S.BLOCKED: frozenset({_S.PENDING, _S.RUNNING, _S.NEEDS_QA, _S.FAILED, _S.CANCELLED}),
        _S.COMPLETED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)

# A loop of a live run may have steps done once more, those included that were completed. Nothing else leaves a final
# status, and what was cancelled stays so.
REOPENED = frozenset({_S.NEEDS_QA, _S.COMPLETED, _S.FAILED, _S.BLOCKED})

Status = TypeVar("Status", RunStatus, StepStatus)


def check_transition(entity: str, key: object, current: Status, wanted: Status) -> None:
    """Raise `IllegalTransition` unless the table of that kind of status allows the change."""
    table: Mapping[Status, frozenset[Status]] = (
        RUN_TRANSITIONS if isinstance(current, RunStatus) else STEP_TRANSITIONS
    )
    if wanted not in table[current]:
        allowed = tuple(sorted(str(status) for status in table[current]))
        raise IllegalTransition(entity, key, str(current), str(wanted), allowed)


@runtime_checkable
class Hashed(Protocol):
    """A value that is known by its content, wherever it lies."""

    @property
    def sha256(self) -> str: ...


def fingerprint(kind: str, **parts: object) -> str:
    """What decides, as one SHA-256 over `parts` that is the same in every process."""
    text = json.dumps([kind, _plain(parts)], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """`value` as JSON has it. What it cannot have is refused by `json` later on."""
    if isinstance(value, Hashed):
        return value.sha256
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Set):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
