"""The names of the jobs of workflows."""

from __future__ import annotations

RUN = "workflow"
"""Carries a run."""
STEP = "workflow.step"
"""One step of a run that another worker carries."""
PLAN = "workflow.plan"
EVOLVE = "workflow.evolve"
OPTIMISE = "workflow.optimise"
SCHEDULED = "workflow.scheduled"
"""Starts a run at its time."""
