"""Running a workflow durably: what has finished is never run again, whatever dies in between."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.runs.plan import RunPlan, start_workflow
    from ratchet.workflows.runs.preparation import prepare
    from ratchet.workflows.runs.results import read_outputs, report_run
else:
    __getattr__ = on_demand(__name__)
