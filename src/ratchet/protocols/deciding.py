"""Loops: what a failed step makes the others do again. Decided while no step is at work."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.kernel import StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.protocol_steps import (
    ProtocolStep,
    change_protocol_step,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.protocols.ci.settling import CI_FAILED
from ratchet.protocols.moves import again
from ratchet.protocols.policies import apply_loop, apply_triggers, may_loop
from ratchet.protocols.stream import Stream


def decide_failed(stream: Stream, steps: Sequence[ProtocolStep]) -> bool:
    """Apply the policies of steps that failed. Whether there is something to do again."""
    changed = False
    for failed in steps:
        if failed.status is StepStatus.FAILED and (failed.runtime_state or {}).get("failed_for"):
            changed = _decide(stream, failed.step_id) or changed
    return changed


def _decide(stream: Stream, step_id: int) -> bool:
    with stream.job.write() as tx:
        step = get_protocol_step(tx, step_id)
        state = dict(step.runtime_state or {})
        reason = state.pop("failed_for", None)
        if step.status is not StepStatus.FAILED or reason is None:
            return False
        if not may_loop(list_protocol_steps(tx, step.run_id), step):
            # Somebody has just asked for another step; it is decided when that one has ended.
            return True
        change_protocol_step(tx, step_id, runtime_state=state)
        step = get_protocol_step(tx, step_id)
        looped = None if _looped_enough(tx, stream, step) else apply_loop(tx, step, reason)
        if looped is None:
            return _mend(tx, stream, step, reason)
        # Without an operator: the step that the loop goes back to runs at once.
        waiting = [
            each
            for each in list_protocol_steps(tx, step.run_id)
            if each.status is StepStatus.PENDING and each.step_index >= looped.target_step_index
        ]
        if waiting and not stream.protocol.automatic:
            again(tx, waiting[0], "a loop goes back to it")
    return True


def _looped_enough(tx: Transaction, stream: Stream, step: ProtocolStep) -> bool:
    """A loop may name no limit; what runs by itself has one all the same."""
    done = sum(((step.runtime_state or {}).get("loop_counts") or {}).values())
    most = stream.job.runtime.settings.protocols.loops
    if done < most:
        return False
    data = {"iterations": done, "max_iterations": most}
    stream.event(
        tx, "loop_limit_reached", f"{step.name} went back {done} times", step_id=step.step_id, data=data
    )
    return True


def _mend(tx: Transaction, stream: Stream, step: ProtocolStep, reason: str) -> bool:
    """What CI refused goes back to its author a bounded number of times; then triggers have the last word."""
    settings = stream.job.runtime.settings.protocols
    fixes = (step.runtime_state or {}).get("fixes", 0)
    if reason == CI_FAILED and stream.protocol.automatic and fixes < settings.fixes:
        stream.event(tx, "step_fix", step.reason or reason, step_id=step.step_id)
        again(tx, step, f"fix: {step.reason}", fixes=fixes + 1)
        return True
    return apply_triggers(tx, step, reason, max_depth=settings.trigger_depth) is not None
