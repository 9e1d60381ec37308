"""The spec of a plan."""

from __future__ import annotations

from ratchet.protocols.planning.plan import Plan, PlannedStep
from ratchet.protocols.spec import ProtocolSpec, Qa, QaPolicy, StepSpec


def spec_of(plan: Plan) -> ProtocolSpec:
    """One step for each step file, in the order of their numbers."""
    return ProtocolSpec(tuple(map(_step, plan.steps)))


def _step(step: PlannedStep) -> StepSpec:
    return StepSpec(
        id=step.name,
        engine_id=step.engine,
        prompt_ref=step.file,
        qa=Qa(QaPolicy(step.qa) if step.qa else QaPolicy.FULL),
        description=step.title,
        step_type=step.step_type,
        depends_on=step.depends_on,
        parallel_group=step.parallel_group,
    )
