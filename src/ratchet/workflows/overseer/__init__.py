"""The overseer: a workflow from a sentence, planned by a model, checked, and remembered."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.operations import LONGEST_SENTENCE, RUN_KIND
    from ratchet.workflows.overseer.planner import plan
    from ratchet.workflows.overseer.request import (
        Planned,
        Reused,
        WorkflowPlanFailed,
        plan_workflow,
        planned_of,
        start_fill,
        start_plan,
    )
else:
    __getattr__ = on_demand(__name__)
