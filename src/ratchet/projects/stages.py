"""The stages of an onboarding: each is done once, and says how it went in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ratchet.kernel import LedgerError, RatchetError, RunStatus, StepStatus, Superseded, Waiting
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.runs import find_or_create_step
from ratchet.runtime import JobContext

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
