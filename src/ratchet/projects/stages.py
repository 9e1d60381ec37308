"""The stages of an onboarding, each done once, and how they are shown to people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ratchet.kernel import LedgerError, RatchetError, RunId, RunStatus, StepStatus, Superseded, Waiting
from ratchet.ledger import Event, EventFilter, Step, Transaction, change_run, change_step
from ratchet.ledger import events as log
from ratchet.ledger.projects import Project
from ratchet.ledger.runs import find_or_create_step, get_run, list_steps
from ratchet.runtime import JobContext

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
class OnboardingView:
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


def onboarding_view(tx: Transaction, project: Project) -> OnboardingView:
    if project.setup_run_id is None:
        stages = [StageView(stage, "pending") for stage in STAGES]
        return OnboardingView(project.id, None, "pending", None, project.local_path, stages, [])
    run = get_run(tx, project.setup_run_id)
    steps = {step.name: step for step in list_steps(tx, run.id)}
    told = log.latest(tx.connection, where=EventFilter(run_id=run.id), limit=_LOOKED_AT)
    return OnboardingView(
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


Stage = Literal["resolve", "discovery", "assets", "git", "clarifications"]
STAGES: tuple[Stage, ...] = ("resolve", "discovery", "assets", "git", "clarifications")
# So that they are told from the steps that a stage itself may have.
_PREFIX = "setup-"


@dataclass(frozen=True, slots=True)
class Note:
    """An event of the onboarding."""

    type: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What a stage leaves: how it went, what is told of it, and what else is to be written in the same transaction."""

    state: Literal["completed", "warning", "skipped"]
    notes: tuple[Note, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    record: Callable[[Transaction], None] | None = None


class Blocked(RatchetError):
    """A stage cannot go on until somebody does something. `event` is what is told of it."""

    def __init__(self, message: str, *, event: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.event = event


def step_name(stage: Stage) -> str:
    return f"{_PREFIX}{stage}"


async def do_stage(
    job: JobContext, project_id: int, stage: Stage, work: Callable[[], Awaitable[Done]]
) -> Mapping[str, Any]:
    """Do a stage, unless it is done, and return what it left. What stops it blocks the run, and raises `Waiting`."""
    with job.write() as tx:
        step, _ = find_or_create_step(tx, job.run_id, step_name(stage), {})
        if step.status is StepStatus.COMPLETED:
            left: Mapping[str, Any] = step.result
            return left
        if step.status is not StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.RUNNING, expected=(step.status,))
    try:
        done = await work()
    except (Superseded, LedgerError):
        raise
    except RatchetError as error:
        reason = f"{error} ({error.hint})" if error.hint else str(error)
        event = error.event if isinstance(error, Blocked) else "setup_blocked"
        with job.write() as tx:
            change_step(tx, step.id, StepStatus.BLOCKED, reason=reason)
            change_run(tx, job.run_id, RunStatus.BLOCKED, reason=reason)
            tell(tx, job, project_id, Note(event, reason, {"stage": stage}))
        raise Waiting(reason) from error
    result = {**done.result, "state": done.state}
    with job.write() as tx:
        if done.record is not None:
            done.record(tx)
        for note in done.notes:
            tell(tx, job, project_id, note)
        change_step(tx, step.id, StepStatus.COMPLETED, expected=(StepStatus.RUNNING,), result=result)
    return result


def tell(tx: Transaction, job: JobContext, project_id: int, note: Note) -> None:
    tx.event(
        note.type,
        project_id=project_id,
        run_id=job.run_id,
        message=note.message,
        data=dict(note.data) or None,
    )
