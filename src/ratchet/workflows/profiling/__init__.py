"""Where the time and the money of a workflow go, and what to make better next."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.profiling.profile import Profile, StepProfile
    from ratchet.workflows.profiling.profiling import profile_rows, profile_run, profile_workflow
else:
    __getattr__ = on_demand(__name__)

__all__ = ["Profile", "StepProfile", "profile_rows", "profile_run", "profile_workflow"]
