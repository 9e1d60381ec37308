"""What people and programs are shown of workflows and tools: plain values, the same in every face."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.views._progress import one_step, progress
    from ratchet.workflows.views.exported import exported_record
    from ratchet.workflows.views.plan import plan_record
    from ratchet.workflows.views.runs import RUN_KIND, lacks_program, outcome, run_record, workflow_runs
    from ratchet.workflows.views.saved import one_workflow, workflow_record, workflows
    from ratchet.workflows.views.tools import (
        best_first,
        call_record,
        choice_record,
        one_tool,
        stats_record,
        tested_record,
        tool_record,
        tool_versions,
        tools_of_run,
        version_record,
    )
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "RUN_KIND",
    "best_first",
    "call_record",
    "choice_record",
    "exported_record",
    "lacks_program",
    "one_step",
    "one_tool",
    "one_workflow",
    "outcome",
    "plan_record",
    "progress",
    "run_record",
    "stats_record",
    "tested_record",
    "tool_record",
    "tool_versions",
    "tools_of_run",
    "version_record",
    "workflow_record",
    "workflow_runs",
    "workflows",
]
