"""Keeping what a person approved although the judges had not passed it."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.kernel import Conflict, StateChanged, StepStatus
from ratchet.ledger.protocol_steps import ProtocolStep, change_protocol_step, get_protocol_step
from ratchet.ledger.stages import stages_of_step
from ratchet.protocols.stream import Blocked, Stream
from ratchet.runtime.attempts import ENDED


def keep_approved(stream: Stream, steps: Sequence[ProtocolStep]) -> None:
    """Move the branch to the newest commit of each step that was approved and is not on it yet."""
    for step in steps:
        if (
            step.status is StepStatus.COMPLETED
            and (step.runtime_state or {}).get("approved_by")
            and not step.commit
        ):
            _keep(stream, step)


def _keep(stream: Stream, step: ProtocolStep) -> None:
    repository = stream.clone.repository
    with stream.job.ledger.read() as tx:
        made = [each["commit"] for each in stages_of_step(tx, step.step_id, ENDED) if each.get("commit")]
    head = repository.resolve(stream.protocol.ref)
    commit = made[-1] if made else head
    if not repository.is_ancestor(commit, stream.protocol.ref):
        if not repository.is_ancestor(head, commit):
            raise Blocked(
                f"the approved change of {step.name} does not fit onto the branch any more",
                event="approval_not_kept",
                hint=f"run the step again: ratchet step run {step.step_id}",
            )
        try:
            repository.advance(stream.protocol.ref, commit, expected=head)
        except (StateChanged, Conflict) as error:
            raise Blocked(str(error), event="approval_not_kept", hint=error.hint) from error
    with stream.job.write() as tx:
        if get_protocol_step(tx, step.step_id).commit is None:
            change_protocol_step(tx, step.step_id, commit=commit)
            stream.event(tx, "approval_kept", f"{commit[:12]} is on the branch", step_id=step.step_id)
