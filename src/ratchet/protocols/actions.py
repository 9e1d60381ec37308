"""What people and programs do with protocols. Each action is one transaction: the status, its event, and the job.

A step is asked for by its status: the caller sets it to running, and only one of many who try at once
succeeds. The carrier then does whatever is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ratchet.kernel import (
    Conflict,
    JobId,
    NotFound,
    RatchetError,
    RunId,
    RunStatus,
    StepId,
    StepStatus,
    check_transition,
    with_hint,
)
from ratchet.ledger import Run, Transaction, change_run
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    add_protocol,
    add_protocol_steps,
    change_protocol_step,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import create_run, lock_run
from ratchet.projects.registration import NUMBERED
from ratchet.protocols.jobs import again, complete_step, move_step, to_needs_qa, wake
from ratchet.protocols.names import check_name, number_of, require_number
from ratchet.protocols.spec import QaPolicy, read_protocol_spec, record_spec, step_rows
from ratchet.runtime import Runtime
from ratchet.runtime.runs import cancel_any, pause_any

Steps = Sequence[ProtocolStep]
RESUMABLE = (RunStatus.PAUSED, RunStatus.BLOCKED)
_STARTABLE = (RunStatus.PENDING, RunStatus.PLANNED, RunStatus.PAUSED)
_WORKABLE = (RunStatus.PENDING, RunStatus.PLANNED, RunStatus.RUNNING, RunStatus.BLOCKED)
_TO_RUN = (StepStatus.PENDING, StepStatus.BLOCKED, StepStatus.FAILED)
_STOPPED = (StepStatus.FAILED, StepStatus.BLOCKED)
_UNTOUCHABLE = (StepStatus.RUNNING, StepStatus.COMPLETED, StepStatus.CANCELLED)


def check_start(protocol: Protocol, steps: Steps) -> None:
    """Raises `Conflict`. A blocked protocol without steps may be planned again."""
    startable = _STARTABLE if steps else (*_STARTABLE, RunStatus.BLOCKED)
    if protocol.status not in startable:
        raise Conflict(
            f"protocol {protocol.run_id} is {protocol.status}: it is already running or has ended",
            hint=_instead(protocol)
            if protocol.status.final
            else "a pending, planned or paused protocol can be started; a blocked one is resumed or its step retried",
        )


def check_resume(protocol: Protocol) -> None:
    if protocol.status not in RESUMABLE:
        raise Conflict(
            f"protocol {protocol.run_id} is {protocol.status}; only a paused or blocked one can be resumed",
            hint=_instead(protocol),
        )


def _instead(protocol: Protocol) -> str:
    """What can be done with a protocol that cannot continue."""
    number = protocol.run_id
    match protocol.status:
        case RunStatus.COMPLETED:
            return (
                f"nothing is left to do: `ratchet protocol show {number}` shows the result, and "
                "`ratchet protocol new` makes another one"
            )
        case RunStatus.FAILED | RunStatus.CANCELLED:
            return (
                f"that is final: `ratchet protocol log {number}` shows why, "
                "and `ratchet protocol new` makes another one"
            )
        case RunStatus.PENDING | RunStatus.PLANNED:
            return f"`ratchet protocol start {number}` starts it"
        case _:
            return f"it is under way: `ratchet protocol log {number} --follow` shows what happens"


def check_open_pull_request(protocol: Protocol) -> None:
    if protocol.status in (RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.PLANNING):
        raise Conflict(
            f"protocol {protocol.run_id} is {protocol.status}; there is nothing to open a pull request for",
            hint=_instead(protocol),
        )
    if protocol.base_commit is None:
        raise Conflict(
            f"protocol {protocol.run_id} has no branch yet", hint=f"ratchet protocol start {protocol.run_id}"
        )


def next_step(protocol: Protocol, steps: Steps) -> ProtocolStep:
    """The first step that waits, is blocked or has failed. Raises `NotFound` when there is none."""
    found = next((each for each in steps if each.status in _TO_RUN), None)
    if found is None:
        raise NotFound("step to run in protocol", protocol.run_id)
    return found


def latest_stopped(protocol: Protocol, steps: Steps) -> ProtocolStep:
    """The last step that failed or is blocked. Raises `NotFound` when there is none."""
    stopped = [each for each in steps if each.status in _STOPPED]
    if not stopped:
        raise NotFound("failed or blocked step in protocol", protocol.run_id)
    return stopped[-1]


def check_workable(protocol: Protocol) -> None:
    """Whether the steps of the protocol may be touched. Raises `Conflict`."""
    if protocol.status not in _WORKABLE:
        hint = "resume it first" if protocol.status is RunStatus.PAUSED else None
        raise Conflict(
            f"protocol {protocol.run_id} is {protocol.status}; its steps cannot be touched now", hint=hint
        )


def check_run(protocol: Protocol, step: ProtocolStep) -> None:
    check_workable(protocol)
    if step.status not in _TO_RUN:
        raise Conflict(
            f"step {step.step_id} is {step.status}; only a pending, blocked or failed step can run",
            hint="wait until it has ended, or ask for its review",
        )


def check_review(protocol: Protocol, step: ProtocolStep) -> None:
    check_workable(protocol)
    if step.status in _UNTOUCHABLE:
        raise Conflict(f"step {step.step_id} is {step.status}; it cannot be reviewed now")


def check_approve(protocol: Protocol, step: ProtocolStep) -> None:
    check_workable(protocol)
    if step.status in _UNTOUCHABLE:
        raise Conflict(
            f"step {step.step_id} is {step.status}; only one that waits, failed or is blocked can be approved"
        )


def _check_halt(protocol: Protocol, to: RunStatus) -> None:
    """Doing it again changes nothing, so there is no use in offering it."""
    if protocol.status is to:
        raise Conflict(f"protocol {protocol.run_id} is {to} already")
    check_transition("protocol", protocol.run_id, protocol.status, to)


_OF_PROTOCOL: Mapping[str, Callable[[Protocol, Steps], object]] = MappingProxyType(
    {
        "start": check_start,
        "pause": lambda protocol, _: _check_halt(protocol, RunStatus.PAUSED),
        "resume": lambda protocol, _: check_resume(protocol),
        "run_next_step": lambda protocol, steps: check_run(protocol, next_step(protocol, steps)),
        "retry_latest": lambda protocol, steps: check_run(protocol, latest_stopped(protocol, steps)),
        "open_pr": lambda protocol, _: check_open_pull_request(protocol),
        "cancel": lambda protocol, _: _check_halt(protocol, RunStatus.CANCELLED),
    }
)
_OF_STEP: Mapping[str, Callable[[Protocol, ProtocolStep], None]] = MappingProxyType(
    {"run": check_run, "run_qa": check_review, "approve": check_approve}
)


def why_not(protocol: Protocol, steps: Steps) -> dict[str, str | None]:
    """For each action on a protocol why it cannot be done now; nothing where it can."""
    return {name: _refusal(check, protocol, steps) for name, check in _OF_PROTOCOL.items()}


def why_not_step(protocol: Protocol, step: ProtocolStep) -> dict[str, str | None]:
    """The same for each action on one of its steps."""
    return {name: _refusal(check, protocol, step) for name, check in _OF_STEP.items()}


def _refusal(check: Callable[..., object], *about: object) -> str | None:
    try:
        check(*about)
    except RatchetError as error:
        return with_hint(error)
    return None


def create_protocol(
    tx: Transaction,
    runtime: Runtime,
    project_id: int,
    name: str,
    *,
    base_branch: str | None = None,
    description: str | None = None,
    automatic: bool | None = None,
    simulated: bool = False,
    planned: bool = False,
    **more: Any,
) -> RunId:
    """A new protocol, pending, or `planned` by the caller, who adds its steps. Nothing happens before it is started.

    Raises `Conflict` when its name is taken, by another protocol or as the base branch, which nothing is pushed to.
    """
    project = get_project(tx, project_id)
    if project.archived_at is not None:
        raise Conflict(f"project {project.id} is archived", hint="take it out of the archive first")
    check_name(name)
    if project.facts.get("branch_naming") == NUMBERED:
        require_number(name)
    base = base_branch or project.base_branch or "main"
    if name in (base, project.base_branch):
        raise Conflict(
            f"{name!r} is the base branch, and a protocol works on a branch of its own",
            hint="name it NNNN-task, such as 0007-add-login",
        )
    run_id = create_run(tx, "protocol", name, project_id=project_id, simulated=simulated)
    add_protocol(
        tx,
        run_id,
        project_id,
        name,
        number=number_of(name),
        base_branch=base,
        description=description,
        automatic=runtime.settings.protocols.automatic if automatic is None else automatic,
        **more,
    )
    for status in (RunStatus.PLANNING, RunStatus.PLANNED) if planned else ():
        change_run(tx, run_id, status, reason="planned by hand")
    return run_id


def start_protocol(tx: Transaction, runtime: Runtime, run_id: int) -> JobId:
    """Plan it, or carry out the plan that it has; by itself only if it is automatic.

    Asking again because no answer came does no harm: nothing is planned twice, and no step is begun that waits
    for a person.
    """
    lock_run(tx, run_id)
    protocol = get_protocol(tx, run_id)
    steps = list_protocol_steps(tx, run_id)
    check_start(protocol, steps)
    to = RunStatus.RUNNING if steps else RunStatus.PLANNING
    change_run(tx, run_id, to, expected=(protocol.status,), reason="started")
    if to is RunStatus.PLANNING:
        _event(tx, protocol, "planning_enqueued", "planning is queued")
    return wake(tx, runtime, run_id)


def pause_protocol(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """Pause it: its worker is asked to stop, what is recorded stays. Pausing it again changes nothing."""
    pause_any(tx, runtime, run, reason)
    if run.status is not RunStatus.PAUSED:
        _event(tx, get_protocol(tx, run.id), "paused", reason)


def resume_protocol(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """Resume a paused or blocked protocol where it stopped: in its planning, or at its steps.

    A step that failed is tried again only when asked.
    """
    lock_run(tx, run.id)
    protocol = get_protocol(tx, run.id)
    check_resume(protocol)
    steps = list_protocol_steps(tx, run.id)
    to = RunStatus.RUNNING if steps else RunStatus.PLANNING
    change_run(tx, run.id, to, expected=RESUMABLE, reason=reason)
    for step in steps:
        # What was blocked only waited for a person; what failed was judged.
        if step.status is StepStatus.BLOCKED:
            asked = (step.runtime_state or {}).get("qa_requested")
            move_step(tx, step, StepStatus.NEEDS_QA if asked else StepStatus.PENDING, reason)
    _event(tx, protocol, "resumed", "resumed on request")
    wake(tx, runtime, run.id)


def cancel_protocol(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    """End it for good, with every step that has not ended. Cancelling it again changes nothing."""
    cancel_any(tx, runtime, run, reason)
    if run.status is not RunStatus.CANCELLED:
        _event(tx, get_protocol(tx, run.id), "cancelled", reason)


def run_next_step(tx: Transaction, runtime: Runtime, run_id: int) -> tuple[ProtocolStep, JobId]:
    """Run the first step that waits, is blocked or has failed. Raises `NotFound` when there is none."""
    found = next_step(get_protocol(tx, run_id), list_protocol_steps(tx, run_id))
    return found, run_step(tx, runtime, found.step_id)


def retry_latest(tx: Transaction, runtime: Runtime, run_id: int) -> tuple[ProtocolStep, JobId]:
    """Try the last step that failed or is blocked once more. Raises `NotFound` when there is none."""
    step = latest_stopped(get_protocol(tx, run_id), list_protocol_steps(tx, run_id))
    job_id = run_step(tx, runtime, step.step_id, event="step_retry_enqueued")
    change_protocol_step(tx, step.step_id, retries=step.retries + 1)
    return step, job_id


def run_step(tx: Transaction, runtime: Runtime, step_id: int, *, event: str = "step_enqueued") -> JobId:
    """Run one step now. Of many who ask at once, one succeeds and the others get a `Conflict`."""
    protocol, step = _taken(tx, step_id)
    check_run(protocol, step)
    again(tx, step, "asked for by hand", fresh=True)
    _enter(tx, protocol)
    _event(tx, protocol, event, f"{step.name} is queued", step_id=step_id)
    return wake(tx, runtime, step.run_id)


def run_qa(tx: Transaction, runtime: Runtime, step_id: int) -> JobId:
    """Have the newest commit of a step judged once more, without a new session of its author."""
    protocol, step = _taken(tx, step_id)
    check_review(protocol, step)
    to_needs_qa(tx, step, "review asked for by hand")
    state = {**(step.runtime_state or {}), "qa_requested": True}
    change_protocol_step(tx, step_id, runtime_state=state, awaits_ci=False)
    _enter(tx, protocol)
    _event(tx, protocol, "qa_enqueued", f"a review of {step.name} is queued", step_id=step_id)
    return wake(tx, runtime, step.run_id)


def approve_step(tx: Transaction, runtime: Runtime, step_id: int, *, by: str = "a person") -> None:
    """A person takes the place of the judges: the step is completed, with the newest commit that its author made."""
    protocol, step = _taken(tx, step_id)
    check_approve(protocol, step)
    state = {**(step.runtime_state or {}), "approved_by": by}
    # Without a commit: the carrier then keeps the newest one that the step has made.
    change_protocol_step(
        tx, step_id, runtime_state=state, awaits_ci=False, commit=None, summary=f"approved by {by}"
    )
    complete_step(tx, step, f"approved by {by}")
    _event(tx, protocol, "manual_approval", f"{step.name} was approved by {by}", step_id=step_id)
    if protocol.status in (RunStatus.RUNNING, RunStatus.BLOCKED):
        _enter(tx, protocol)
        wake(tx, runtime, step.run_id)


def open_pull_request(tx: Transaction, runtime: Runtime, run_id: int) -> JobId:
    """Push the branch and open its pull request, or bring the one that there is up to date."""
    protocol = get_protocol(tx, run_id)
    check_open_pull_request(protocol)
    _event(tx, protocol, "open_pr_enqueued", "a pull request is queued")
    return wake(tx, runtime, run_id, payload={"pull_request": True})


def _taken(tx: Transaction, step_id: int) -> tuple[Protocol, ProtocolStep]:
    """A step with its protocol. The run is taken first, as everybody does who changes a step."""
    run_id = get_protocol_step(tx, step_id).run_id
    lock_run(tx, run_id)
    return get_protocol(tx, run_id), get_protocol_step(tx, step_id)


def _enter(tx: Transaction, protocol: Protocol) -> None:
    if protocol.status is not RunStatus.RUNNING:
        change_run(tx, protocol.run_id, RunStatus.RUNNING, expected=(protocol.status,))


def _event(
    tx: Transaction, protocol: Protocol, type: str, message: str, *, step_id: int | None = None
) -> None:
    tx.event(
        type,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        step_id=step_id,
        message=message,
        data={"spec_hash": protocol.spec_hash},
    )


def add_step(
    tx: Transaction,
    run_id: int,
    *,
    name: str,
    step_index: int,
    step_type: str,
    engine_id: str | None = None,
    model: str | None = None,
    policies: Sequence[Mapping[str, Any]] = (),
    summary: str | None = None,
    depends_on: Sequence[str] = (),
) -> StepId:
    """A pending step that is carried out as `NAME.md` in the protocol's folder says. The spec is the one with it.

    Raises `SpecInvalid` when the protocol cannot have such a step, and `Conflict` when its name or place is taken, or
    when the protocol is being planned or has ended.
    """
    protocol = get_protocol(tx, run_id)
    if protocol.status.final or protocol.status is RunStatus.PLANNING:
        raise Conflict(f"protocol {run_id} is {protocol.status}; no steps can be added to it now")
    there = list_protocol_steps(tx, run_id)
    if any(step.name == name for step in there):
        raise Conflict(f"protocol {run_id} has a step {name!r} already", hint="take another name")
    step = {
        "id": name,
        "name": name,
        "engine_id": engine_id,
        "prompt_ref": f"{name}.md",
        "qa": {"policy": QaPolicy.FULL},
        "step_type": step_type,
        **({} if model is None else {"model": model}),
        **({"policies": list(policies)} if policies else {}),
        **({"depends_on": list(depends_on)} if depends_on else {}),
    }
    written = [each.spec for each in there if each.spec]
    place = sum(each.step_index < step_index for each in there if each.spec)
    spec = read_protocol_spec(
        {**(protocol.spec or {}), "steps": [*written[:place], step, *written[place:]]}, root=protocol.root
    )
    row = next(row for row in step_rows(spec) if row["name"] == name)
    [step_id] = add_protocol_steps(tx, run_id, [{**row, "step_index": step_index, "summary": summary}])
    record_spec(tx, run_id, spec)
    return step_id
