"""When a run is over."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.ledger.research import Standing
from ratchet.research.adapter import TaskAdapter
from ratchet.research.plan import Plan

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Stops:
    """Hard stops. Hours are those in which the run really ran: a pause and the time until a restart do not count."""

    trials: int | None = None
    hours: float | None = None
    hours_without_keep: float | None = None

    @classmethod
    def of(cls, plan: Plan, task: TaskAdapter) -> Stops:
        return cls(
            plan.trials if plan.trials is not None else task.max_trials,
            plan.hours if plan.hours is not None else task.max_hours,
            plan.hours_without_keep if plan.hours_without_keep is not None else task.hours_without_keep,
        )

    @property
    def made_all(self) -> str:
        """Why a run is over that has made its trials."""
        return "its only trial was made" if self.trials == 1 else f"all {self.trials} trials were made"

    def reached(self, standing: Standing) -> str | None:
        """Why the run is over, in words for the record."""
        if self.trials is not None and standing.trials >= self.trials:
            return self.made_all
        if self.hours is not None and standing.active_ms >= self.hours * _HOUR_MS:
            return f"it ran for {self.hours:g} hours"
        since = standing.active_ms - standing.kept_at_ms
        if self.hours_without_keep is not None and since >= self.hours_without_keep * _HOUR_MS:
            return f"nothing was kept for {self.hours_without_keep:g} hours"
        return None

    def seconds_left(self, standing: Standing) -> float:
        """How long a session that begins now may take."""
        if self.hours is None:
            return float("inf")
        return max(1.0, (self.hours * _HOUR_MS - standing.active_ms) / 1000)
