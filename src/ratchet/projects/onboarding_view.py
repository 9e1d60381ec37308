"""How an onboarding stands, for people: its stages, and what it has told."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.kernel import RunId, RunStatus, StepStatus
from ratchet.ledger import Event, Filter, Step, Transaction
from ratchet.ledger import events as log
from ratchet.ledger.projects import Project
from ratchet.ledger.runs import get_run, list_steps
from ratchet.projects.stages import STAGES, step_name

_EVENTS = 50
# An onboarding has few events of other types, so this many hold all that is wanted.
_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class StageView:
    """`status` is pending, running, skipped, warning, blocked, completed or failed."""

    name: str
    status: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Onboarding:
    """`status` is that of its run; `pending` when there is none. Events are newest first."""

    project_id: int
    run_id: RunId | None
    status: str
    reason: str | None
    workspace_path: str | None
    stages: list[StageView]
    events: list[Event]

    @property
    def last_event(self) -> Event | None:
        return self.events[0] if self.events else None


def onboarding_view(tx: Transaction, project: Project) -> Onboarding:
    if project.setup_run_id is None:
        stages = [StageView(stage, "pending") for stage in STAGES]
        return Onboarding(project.id, None, "pending", None, project.local_path, stages, [])
    run = get_run(tx, project.setup_run_id)
    steps = {step.name: step for step in list_steps(tx, run.id)}
    told = log.latest(tx.connection, where=Filter(run_id=run.id), limit=_LOOKED_AT)
    return Onboarding(
        project_id=project.id,
        run_id=run.id,
        status=str(run.status),
        reason=run.reason,
        workspace_path=project.local_path,
        stages=[_stage(stage, steps.get(step_name(stage)), run.status) for stage in STAGES],
        events=[event for event in told if event.type.startswith("setup_")][:_EVENTS],
    )


def _stage(name: str, step: Step | None, run: RunStatus) -> StageView:
    if step is None:
        return StageView(name, "pending")
    if step.status is StepStatus.COMPLETED:
        return StageView(name, (step.result or {}).get("state", "completed"))
    if step.status is StepStatus.RUNNING and run is RunStatus.FAILED:
        return StageView(name, "failed", step.reason)
    return StageView(name, str(step.status), step.reason)
