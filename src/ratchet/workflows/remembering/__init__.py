"""What the memory holds of workflows: plans that were made, what failed, and what mended it."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.remembering.failed_runs import remember_failed_run
    from ratchet.workflows.remembering.forgetting import delete_workflow, forget_workflow
    from ratchet.workflows.remembering.lessons import (
        Lesson,
        lessons_for,
        remember_failure,
        remember_fix,
        remember_lesson,
    )
    from ratchet.workflows.remembering.plans import RememberedPlan, find_plans, remember_plan
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Lesson",
    "RememberedPlan",
    "delete_workflow",
    "find_plans",
    "forget_workflow",
    "lessons_for",
    "remember_failed_run",
    "remember_failure",
    "remember_fix",
    "remember_lesson",
    "remember_plan",
]
