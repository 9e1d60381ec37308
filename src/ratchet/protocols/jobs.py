"""The jobs of protocols: their kinds, which every process knows, and how a run and its steps are woken and moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.kernel import JobId, RunStatus, StepStatus
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.protocols import ProtocolStep, change_protocol_step, get_protocol, list_protocol_steps
from ratchet.ledger.statuses import reopen_step
from ratchet.runtime import Runtime
from ratchet.runtime.job import run_key

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction
    from ratchet.runtime import JobContext, Kinds, Runtime
    from ratchet.runtime.runtime import RunActions


CARRY = "protocol"
AUDIT = "spec_audit"
IMPORT = "codemachine_import"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(CARRY, _carry)
    kinds.add(AUDIT, _audit)
    kinds.add(IMPORT, _import)
    kinds.add_run("protocol", _actions)
    kinds.at_start(_keep_schedule)


async def _carry(job: JobContext) -> object:
    from ratchet.protocols.run import carry

    return await carry(job)


def _actions(tx: Transaction, run: Run) -> RunActions:
    from ratchet.ledger.protocols import is_protocol
    from ratchet.protocols.actions import cancel_protocol, pause_protocol, resume_protocol
    from ratchet.runtime.runtime import RunActions

    # The onboarding of a project is a run of this kind too, but no protocol.
    if not is_protocol(tx, run.id):
        return RunActions()
    return RunActions(pause_protocol, resume_protocol, cancel_protocol)


async def _audit(job: JobContext) -> object:
    from ratchet.protocols.spec.audit import audit

    return await audit(job)


async def _import(job: JobContext) -> object:
    from ratchet.protocols.codemachine import import_in_job

    return await import_in_job(job)


def _keep_schedule(runtime: Runtime) -> None:
    from ratchet.protocols.spec.audit import keep_schedule

    keep_schedule(runtime)


# What a step remembers only until it is started again by hand.
OF_ONE_TRY = ("fixes", "goes_on", "rebase", "qa_requested", "triggered", "failed_for")
RESTS_ON_RECORDING = (
    "it rests on a recording, which counts only in a simulation; make it again with live engines"
)


def wake(
    tx: Transaction, runtime: Runtime, run_id: int, *, payload: Mapping[str, Any] | None = None
) -> JobId:
    """Queue a job for the run: whatever has changed, it will see it.

    Always another one, also where one waits already: that one may begin, and look, before this transaction ends.
    """
    made = runtime.enqueue(tx, CARRY, dict(payload or {}), run_id=run_id, key=run_key(run_id))
    assert made is not None
    return made


def move_step(tx: Transaction, step: ProtocolStep, to: StepStatus, reason: str) -> None:
    """Change the status of a step that still is as it was read."""
    change_step(tx, step.step_id, to, expected=(step.status,), reason=reason)


def again(tx: Transaction, step: ProtocolStep, reason: str, *, fresh: bool = False, **state: Any) -> None:
    """Have a step done once more, now. `fresh` forgets what earlier tries left for the next one."""
    if step.status is not StepStatus.RUNNING:
        if step.status in (StepStatus.NEEDS_QA, StepStatus.COMPLETED):
            reopen_step(tx, step.step_id, reason=reason)
            change_step(tx, step.step_id, StepStatus.RUNNING, expected=(StepStatus.PENDING,), reason=reason)
        else:
            move_step(tx, step, StepStatus.RUNNING, reason)
    remembered = dict(step.runtime_state or {})
    if fresh:
        remembered = {key: value for key, value in remembered.items() if key not in OF_ONE_TRY}
    change_protocol_step(tx, step.step_id, runtime_state={**remembered, **state}, awaits_ci=False)


def to_needs_qa(tx: Transaction, step: ProtocolStep, reason: str) -> None:
    """Have a step judged that is not being worked on."""
    if step.status is StepStatus.NEEDS_QA:
        return
    if step.status is not StepStatus.BLOCKED:
        move_step(tx, step, StepStatus.RUNNING, reason)
        change_step(tx, step.step_id, StepStatus.NEEDS_QA, expected=(StepStatus.RUNNING,), reason=reason)
        return
    move_step(tx, step, StepStatus.NEEDS_QA, reason)


def complete_step(tx: Transaction, step: ProtocolStep, reason: str) -> None:
    """Complete a step that is not being worked on, from wherever it stands."""
    to_needs_qa(tx, step, reason)
    change_step(tx, step.step_id, StepStatus.COMPLETED, expected=(StepStatus.NEEDS_QA,), reason=reason)


def block_run(tx: Transaction, run_id: int, reason: str) -> None:
    """Block a protocol until a person does what the reason says, unless it stands or has ended."""
    status = get_protocol(tx, run_id).status
    if not status.stands:
        change_run(tx, run_id, RunStatus.BLOCKED, expected=(status,), reason=reason)


def complete_if_done(tx: Transaction, run_id: int) -> bool:
    """Complete a running protocol whose steps are all completed or cancelled, and at least one completed.

    It is blocked instead when it rests on a recording, even if its steps were approved.
    """
    steps = list_protocol_steps(tx, run_id)
    done = (StepStatus.COMPLETED, StepStatus.CANCELLED)
    protocol = get_protocol(tx, run_id)
    if (
        protocol.status is not RunStatus.RUNNING
        or not steps
        or any(each.status not in done for each in steps)
    ):
        return False
    if all(each.status is StepStatus.CANCELLED for each in steps):
        return False
    if protocol.rests_on_recording:
        block_run(tx, run_id, RESTS_ON_RECORDING)
        return True
    reason = _how_it_ended(steps)
    change_run(tx, run_id, RunStatus.COMPLETED, expected=(RunStatus.RUNNING,), reason=reason)
    tx.event(
        "protocol_completed",
        run_id=run_id,
        project_id=protocol.project_id,
        message=reason,
        data={"spec_hash": protocol.spec_hash, "steps": len(steps)},
    )
    return True


def _how_it_ended(steps: Sequence[ProtocolStep]) -> str:
    """Which steps were accepted by a person is said; their checks or reviews did not pass them."""
    completed = [each for each in steps if each.status is StepStatus.COMPLETED]
    people = [str(by) for each in completed if (by := (each.runtime_state or {}).get("approved_by"))]
    if not people:
        return "every step passed"
    passed = len(completed) - len(people)
    names = " and ".join(dict.fromkeys(people))
    begins = f"{passed} step{'' if passed == 1 else 's'} passed, " if passed else ""
    return f"{begins}{len(people)} approved by {names} without passing"
