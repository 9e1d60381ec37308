"""What becomes of work: the statuses of runs, steps and trials, what a judge says of a candidate, what it costs, and
what it needs where it is done.

A status that maps to nothing is final: nothing revives it. Only `ratchet.ledger.statuses` writes statuses, and it
asks `check_transition` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import add, attrgetter, sub
from types import MappingProxyType
from typing import Any, Self, TypeVar

from ratchet.kernel.errors import IllegalTransition


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
        """Whether nothing happens any more by itself: it has ended, or waits for a person."""
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


class BudgetPolicy(StrEnum):
    STRICT = "strict"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Usage:
    """Real consumption. Money is whole millionths of a dollar, so that sums are exact.

    `unpriced_tokens` are those of the tokens whose price nobody knows: what they cost is not in `cost_microusd`.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    wall_ms: int = 0
    trials: int = 0
    unpriced_tokens: int = 0

    def __post_init__(self) -> None:
        amounts = _amounts(self)
        # Told at a glance, since there are many of these; only what looks wrong is looked at one by one.
        if set(map(type, amounts)) == _WHOLE and min(amounts) >= 0:
            return
        for name, value in zip(MEASURES, amounts, strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"usage {name} must be a whole number of at least 0, not {value!r}")

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _amounts(self), _amounts(other)))

    def largest(self, other: Usage) -> Usage:
        """The larger of both, measure by measure."""
        return Usage(*map(max, _amounts(self), _amounts(other)))

    def less(self, part: Usage) -> Usage:
        """What is left without `part`; never below zero."""
        return Usage(*(max(0, left) for left in map(sub, _amounts(self), _amounts(part))))

    def measures(self) -> dict[str, int]:
        """Each measure by its name."""
        return dict(zip(MEASURES, _amounts(self), strict=True))

    @property
    def tokens(self) -> int:
        """All tokens in and out. Cached input is part of the input and not counted twice."""
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> float:
        """What is known of the cost."""
        return self.cost_microusd / 1_000_000

    @property
    def whole_cost_usd(self) -> float | None:
        """The cost, or nothing when a part of it is unknown: that is never told as a cost of zero."""
        return None if self.unpriced_tokens else self.cost_usd

    @property
    def wall_seconds(self) -> float:
        return self.wall_ms / 1000


MEASURES = tuple(each.name for each in fields(Usage))
_amounts: Callable[[Usage], tuple[int, ...]] = attrgetter(*MEASURES)
_WHOLE = {int}


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be used; `None` is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None
    wall_seconds: float | None = None
    trials: int | None = None

    def exceeded_by(self, usage: Usage) -> tuple[str, float, float] | None:
        """The first measure that is over its limit, as (measure, used, limit)."""
        return self._first(usage, reached=False)

    def reached_by(self, usage: Usage) -> tuple[str, float, float] | None:
        """The first measure with nothing left, as (measure, used, limit)."""
        return self._first(usage, reached=True)

    def less(self, usage: Usage) -> Limits:
        """What is left of these limits after `usage`; never below zero."""
        left: dict[str, float | int | None] = {}
        for each in fields(self):
            limit = getattr(self, each.name)
            left[each.name] = None if limit is None else max(0, limit - getattr(usage, each.name))
        return Limits(**left)  # type: ignore[arg-type]

    def tightest(self, other: Limits) -> Limits:
        """The smaller of both limits, measure by measure."""
        if other == Limits():
            return self
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Limits(
            **{name: min((x for x in pair if x is not None), default=None) for name, pair in pairs.items()}
        )

    def _first(self, usage: Usage, *, reached: bool) -> tuple[str, float, float] | None:
        for each in fields(self):
            limit = getattr(self, each.name)
            used = getattr(usage, each.name)
            if limit is not None and (used >= limit if reached else used > limit):
                return each.name, float(used), float(limit)
        return None


PLACEMENT_KINDS = ("local", "ray", "processes")


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """Where a task or a tool wants to run, and what it needs there. What it leaves out is as it would be without."""

    kind: str = ""
    cpus: float | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    gpu_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    wall_seconds: float | None = None

    @property
    def data(self) -> dict[str, Any]:
        """As a file has it."""
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value) if name == "labels" else value
            for name, value in said.items()
            if value not in (None, "", {})
        }
