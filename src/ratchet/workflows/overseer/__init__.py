"""The overseer: a workflow from a sentence, planned by a model, checked, and remembered."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.overseer.asking import (
        LONGEST_SENTENCE,
        RUN_KIND,
        plan_workflow,
        start_plan,
    )
    from ratchet.workflows.overseer.planned import PlanFailed, Planned, Reused, planned_of
    from ratchet.workflows.overseer.planning import plan
else:
    __getattr__ = on_demand(__name__)

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
