"""Loops: a failed step sends the protocol back to an earlier step; itself and what follows run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import Conflict, StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.protocols import (
    ProtocolStep,
    change_protocol_step,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import lock_run
from ratchet.ledger.statuses import reopen_step
from ratchet.protocols.ci import CI_FAILED
from ratchet.protocols.jobs import OF_ONE_TRY, again
from ratchet.protocols.policies import Behavior, StepPolicy, apply_triggers, indexes_of, read_policies
from ratchet.protocols.stream import Stream


def loop_target(index: int, step_back: int, skipped: Set[int]) -> int:
    """The index that a loop of the step at `index` goes back to: never below 0, and past what it skips."""
    target = max(0, index - max(1, step_back))
    while target in skipped and target > 0:
        target -= 1
    return target


def steps_again(target: int, skipped: Set[int], live: Iterable[int]) -> list[int]:
    """Which of the `live` indexes are done again: those from the target on that are not skipped."""
    return sorted(index for index in live if index >= target and index not in skipped)


def limit_reached(count: int, most: int | None) -> bool:
    """Whether a loop that went back `count` times may not do so again."""
    return most is not None and count >= most


_FORGOTTEN = frozenset(OF_ONE_TRY)
_ENDED_BADLY = (StepStatus.FAILED, StepStatus.BLOCKED)


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """What a loop did. `iterations` counts this time too; no `max_iterations` means that there is no limit."""

    module_id: str
    target_step_index: int
    steps_reset: tuple[int, ...]
    iterations: int
    max_iterations: int | None
    reason: str

    @property
    def summary(self) -> str:
        most = "∞" if self.max_iterations is None else self.max_iterations
        return f"Looped via {self.module_id} ({self.iterations}/{most})"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "module_id": self.module_id,
            "target_step_index": self.target_step_index,
            "steps_reset": list(self.steps_reset),
            "iterations": self.iterations,
            "max_iterations": self.max_iterations,
            "reason": self.reason,
        }


def may_loop(steps: Sequence[ProtocolStep], step: ProtocolStep) -> bool:
    """Whether no other step of the protocol is running: what is being done is never undone under its author.

    A step that waits for CI does not count. Its commit is judged elsewhere, and a late answer changes nothing any more.
    """
    return not _at_work(steps, step)


def apply_loop(tx: Transaction, step: ProtocolStep, reason: str) -> LoopDecision | None:
    """Go back as the first policy says that may, and tell why others may not. Nothing if none may.

    Only a step that failed or is blocked is gone back from, so a second call for one failure changes nothing. Raises
    `Conflict` while another step is being worked on; ask `may_loop` first.
    """
    run = lock_run(tx, step.run_id)
    current = get_protocol_step(tx, step.step_id)
    if run.status.final or current.status not in _ENDED_BADLY:
        return None
    loops = [policy for policy in read_policies(current.policy) if policy.behavior is Behavior.LOOP]
    if not loops:
        return None
    steps = list_protocol_steps(tx, step.run_id)
    busy = _at_work(steps, current)
    if busy:
        raise Conflict(
            f"step {current.name} cannot loop while others are being worked on: {', '.join(busy)}",
            hint="apply its policies when they have ended",
        )
    for policy in loops:
        decision = _decide(tx, policy, current, steps, reason, project_id=run.project_id)
        if decision is not None:
            _apply(tx, decision, current, steps, project_id=run.project_id)
            return decision
    return None


def _decide(
    tx: Transaction,
    policy: StepPolicy,
    step: ProtocolStep,
    steps: Sequence[ProtocolStep],
    reason: str,
    *,
    project_id: int | None,
) -> LoopDecision | None:
    def tell(type: str, message: str, **data: Any) -> None:
        details = {"module_id": policy.module_id, "reason": reason, **data}
        tx.event(
            type,
            run_id=step.run_id,
            project_id=project_id,
            step_id=step.step_id,
            message=message,
            data=details,
        )

    if not policy.concerns(reason):
        wanted = sorted(policy.reasons)
        tell("loop_condition_skipped", f"{policy.module_id} is not for {reason}", conditions=wanted)
        return None
    done = _counts(step).get(policy.module_id, 0)
    if limit_reached(done, policy.max_iterations):
        message = f"{policy.module_id} went back {done} times already"
        tell("loop_limit_reached", message, iterations=done, max_iterations=policy.max_iterations)
        return None
    skipped = indexes_of(policy.skip_steps, steps)
    target = loop_target(step.step_index, policy.step_back, skipped)
    live = (each.step_index for each in steps if each.status is not StepStatus.CANCELLED)
    return LoopDecision(
        module_id=policy.module_id,
        target_step_index=target,
        steps_reset=tuple(steps_again(target, skipped, live)),
        iterations=done + 1,
        max_iterations=policy.max_iterations,
        reason=reason,
    )


def _apply(
    tx: Transaction,
    decision: LoopDecision,
    source: ProtocolStep,
    steps: Sequence[ProtocolStep],
    *,
    project_id: int | None,
) -> None:
    counts = {**_counts(source), decision.module_id: decision.iterations}
    remembered = {
        "loop_counts": counts,
        "last_action": "loop_step_back",
        "last_policy_module_id": decision.module_id,
        "last_target_step_index": decision.target_step_index,
    }
    for step in steps:
        own = remembered if step.step_id == source.step_id else {}
        again = step.step_index in decision.steps_reset
        if again:
            reopen_step(tx, step.step_id, reason=decision.summary, data={"module_id": decision.module_id})
        if again or own:
            _remember(tx, step, decision if again else None, own)
    tx.event(
        "loop_decision",
        run_id=source.run_id,
        project_id=project_id,
        step_id=source.step_id,
        message=f"{decision.summary}: back to step {decision.target_step_index}",
        data=decision.data,
    )


def _remember(
    tx: Transaction, step: ProtocolStep, decision: LoopDecision | None, own: dict[str, Any]
) -> None:
    """Attempts, commits, what policies did before and what was wrong with the last try stay. What else that try left
    for the next one goes: all begin again, and in their order."""
    before = {key: value for key, value in (step.runtime_state or {}).items() if key not in _FORGOTTEN}
    values: dict[str, Any] = {"runtime_state": {**before, **own}}
    if decision is not None:
        values |= {"summary": decision.summary, "awaits_ci": False}
    change_protocol_step(tx, step.step_id, **values)


def _counts(step: ProtocolStep) -> dict[str, int]:
    state = step.runtime_state if isinstance(step.runtime_state, dict) else {}
    counts = state.get("loop_counts")
    return dict(counts) if isinstance(counts, dict) else {}


def _at_work(steps: Sequence[ProtocolStep], step: ProtocolStep) -> list[str]:
    return [
        each.name
        for each in steps
        if each.step_id != step.step_id
        and (each.status is StepStatus.RUNNING or (each.status is StepStatus.NEEDS_QA and not each.awaits_ci))
    ]


def decide_failed(stream: Stream, steps: Sequence[ProtocolStep]) -> bool:
    """Apply the policies of steps that failed. Whether there is something to do again."""
    changed = False
    for failed in steps:
        if failed.status is StepStatus.FAILED and (failed.runtime_state or {}).get("failed_for"):
            changed = _decide_step(stream, failed.step_id) or changed
    return changed


def _decide_step(stream: Stream, step_id: int) -> bool:
    with stream.job.write() as tx:
        step = get_protocol_step(tx, step_id)
        state = dict(step.runtime_state or {})
        reason = state.pop("failed_for", None)
        if step.status is not StepStatus.FAILED or reason is None:
            return False
        if not may_loop(list_protocol_steps(tx, step.run_id), step):
            # Another step was just asked for; it is decided when that one has ended.
            return True
        change_protocol_step(tx, step_id, runtime_state=state)
        step = get_protocol_step(tx, step_id)
        looped = None if _looped_enough(tx, stream, step) else apply_loop(tx, step, reason)
        if looped is None:
            return _fix(tx, stream, step, reason)
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


def _fix(tx: Transaction, stream: Stream, step: ProtocolStep, reason: str) -> bool:
    """What CI refused goes back to its author a bounded number of times; then triggers have the last word."""
    settings = stream.job.runtime.settings.protocols
    fixes = (step.runtime_state or {}).get("fixes", 0)
    if reason == CI_FAILED and stream.protocol.automatic and fixes < settings.fixes:
        stream.event(tx, "step_fix", step.reason or reason, step_id=step.step_id)
        again(tx, step, f"fix: {step.reason}", fixes=fixes + 1)
        return True
    return apply_triggers(tx, step, reason, max_depth=settings.trigger_depth) is not None
