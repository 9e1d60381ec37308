"""Where the time and the money of a workflow go, and what to make better next."""

from ratchet.workflows.profiling.profile import Profile, StepProfile
from ratchet.workflows.profiling.profiling import profile_rows, profile_run, profile_workflow

__all__ = ["Profile", "StepProfile", "profile_rows", "profile_run", "profile_workflow"]
