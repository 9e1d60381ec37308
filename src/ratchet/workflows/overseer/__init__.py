"""The overseer: a workflow from a sentence, planned by a model, checked, and remembered."""

from ratchet.workflows.overseer.asking import (
    LONGEST_SENTENCE,
    RUN_KIND,
    plan_workflow,
    start_plan,
)
from ratchet.workflows.overseer.planned import PlanFailed, Planned, Reused, planned_of
from ratchet.workflows.overseer.planning import plan

__all__ = [
    "LONGEST_SENTENCE",
    "RUN_KIND",
    "PlanFailed",
    "Planned",
    "Reused",
    "plan",
    "plan_workflow",
    "planned_of",
    "start_plan",
]
