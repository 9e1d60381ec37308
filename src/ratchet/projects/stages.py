"""The stages of an onboarding, each done once, and how they are shown to people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ratchet.kernel import LedgerError, RatchetError, RunId, RunStatus, StepStatus, Superseded, Waiting
from ratchet.ledger import EventFilter, Step, Transaction, change_run, change_step
from ratchet.ledger import events as log
from ratchet.ledger.projects import Project
from ratchet.ledger.runs import find_or_create_step, get_run, list_steps
from ratchet.operations import described
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
class SetupEvent:
    id: int
    event_type: str
    message: str | None
    metadata: Any
    created_at: int


@dataclass(frozen=True, slots=True)
class OnboardingAnswer:
    """`status` is that of its run, `pending` when there is none.

    A stage is pending, running, skipped, warning, blocked, completed or failed.
    """

    project_id: int
    protocol_run_id: RunId | None
    status: str
    reason: str | None
    workspace_path: str | None
    last_event: SetupEvent | None
    stages: list[StageView]
    events: list[SetupEvent] = field(metadata=described("newest first"))


@dataclass(frozen=True, slots=True)
class SetupEnvironment:
    directory: str
    python: str | None
    seconds: float = field(metadata=described("how long making it took"))
    commands: list[str]
    directories: list[str] = field(
        metadata=described("what the set-up made in the checkout, such as node_modules")
    )
    notes: list[str] = field(metadata=described("what failed and was done without"))


@dataclass(frozen=True, slots=True)
class CheckCommand:
    name: str = field(metadata={"examples": ["pytest"]})
    command: str = field(metadata={"examples": ["python3 -m pytest"]})
    kind: str = field(metadata={"examples": ["test"]})


@dataclass(frozen=True, slots=True)
class SetupAnswer:
    """How a project is set up and checked."""

    stack: list[str]
    commands: list[str]
    settled: bool = field(metadata=described("whether a person has chosen the commands"))
    needs: list[str] = field(metadata=described("distributions that checks run"))
    runs: list[str] = field(metadata=described("what making the environment runs"))
    state: str = field(metadata=described("not needed, not made yet, made or unknown"))
    problem: str | None
    environment: SetupEnvironment | None
    checks: list[CheckCommand]
    checks_settled: bool
    notes: list[str]


def onboarding_view(tx: Transaction, project: Project) -> OnboardingAnswer:
    if project.setup_run_id is None:
        stages = [StageView(stage, "pending") for stage in STAGES]
        return OnboardingAnswer(project.id, None, "pending", None, project.local_path, None, stages, [])
    run = get_run(tx, project.setup_run_id)
    steps = {step.name: step for step in list_steps(tx, run.id)}
    events = [
        SetupEvent(event.id, event.type, event.message, event.data, event.at)
        for event in log.latest(tx.connection, where=EventFilter(run_id=run.id), limit=_LOOKED_AT)
        if event.type.startswith("setup_")
    ][:_EVENTS]
    return OnboardingAnswer(
        project_id=project.id,
        protocol_run_id=run.id,
        status=str(run.status),
        reason=run.reason,
        workspace_path=project.local_path,
        last_event=events[0] if events else None,
        stages=[_stage(stage, steps.get(step_name(stage)), run.status) for stage in STAGES],
        events=events,
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
    """A stage cannot continue until somebody does something. `event` is what is told of it."""

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
