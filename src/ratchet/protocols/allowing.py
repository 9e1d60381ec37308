"""What may be done with a protocol and its steps as they stand. Actions ask before they act, faces show why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ratchet.kernel import Conflict, NotFound, RatchetError, RunStatus, StepStatus, check_transition
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.protocols import Protocol

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
    """What can be done with a protocol that cannot go on."""
    number = protocol.run_id
    match protocol.status:
        case RunStatus.COMPLETED:
            return (
                f"nothing is left to do: `ratchet protocol show {number}` tells what came of it, and "
                "`ratchet protocol new` makes another one"
            )
        case RunStatus.FAILED | RunStatus.CANCELLED:
            return (
                f"that is final: `ratchet protocol log {number}` tells why, "
                "and `ratchet protocol new` makes another one"
            )
        case RunStatus.PENDING | RunStatus.PLANNED:
            return f"`ratchet protocol start {number}` starts it"
        case _:
            return f"it is under way: `ratchet protocol log {number} --follow` tells what happens"


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
        return f"{error} ({error.hint})" if error.hint else str(error)
    return None
