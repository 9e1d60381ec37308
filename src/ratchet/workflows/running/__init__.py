"""Running a workflow durably: what has finished is never run again, whatever dies in between."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.running.plan import RunPlan
    from ratchet.workflows.running.preparing import BadWorkflow, prepare
    from ratchet.workflows.running.report import read_outputs, report_run
    from ratchet.workflows.running.starting import start_workflow
else:
    __getattr__ = on_demand(__name__)

__all__ = ["BadWorkflow", "RunPlan", "prepare", "read_outputs", "report_run", "start_workflow"]
