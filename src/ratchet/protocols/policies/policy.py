"""Policies of steps: go back and do some again, or have another one done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Behavior(StrEnum):
    LOOP = "loop"
    TRIGGER = "trigger"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to happen when a step ends in one of the `reasons`; none means however it ends.

    A loop without `max_iterations` has no end of its own. `skip_steps` has indexes, and names or ids of steps.
    """

    module_id: str
    behavior: Behavior
    action: str | None = None
    max_iterations: int | None = None
    step_back: int = 1
    skip_steps: frozenset[int | str] = frozenset()
    trigger_agent_id: str | None = None
    target_agent_id: str | None = None
    reasons: frozenset[str] = frozenset()

    @property
    def target(self) -> str | None:
        """The agent that a trigger has do its step."""
        return self.trigger_agent_id or self.target_agent_id

    def concerns(self, reason: str) -> bool:
        return not self.reasons or reason.lower() in self.reasons
