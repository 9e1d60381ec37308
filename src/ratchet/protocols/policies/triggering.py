"""Triggers: a step that ended has the step of another agent done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import StepId, StepStatus
from ratchet.ledger import Transaction
from ratchet.ledger.protocol_steps import (
    ProtocolStep,
    change_protocol_step,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import lock_run
from ratchet.ledger.statuses import reopen_step
from ratchet.protocols.policies.finding import find_agent
from ratchet.protocols.policies.policy import Behavior, Policy
from ratchet.protocols.policies.reading import read_policies

_DONE = (StepStatus.COMPLETED, StepStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    """The step that is to be done, and how many triggers led to it one after another."""

    module_id: str
    target_step_id: StepId
    target: str
    depth: int
    reason: str


def apply_triggers(
    tx: Transaction, step: ProtocolStep, reason: str, *, max_depth: int
) -> TriggerDecision | None:
    """Put the target of the first trigger that may fire in line, marked to be done out of turn. Nothing if none may.

    At most `max_depth` triggers follow one another. What is completed, cancelled or being worked on is left alone. A
    target that a trigger put in line before, and that has not begun, stays as it is.
    """
    run = lock_run(tx, step.run_id)
    if run.status.final:
        return None
    source = get_protocol_step(tx, step.step_id)
    steps = list_protocol_steps(tx, step.run_id)
    for policy in read_policies(source.policy):
        if policy.behavior is Behavior.TRIGGER:
            firing = _Firing(tx, policy, source, reason, run.project_id)
            decision = firing.fire(steps, max_depth)
            if decision is not None:
                return decision
    return None


@dataclass(frozen=True, slots=True)
class _Firing:
    """One trigger at one end of its step."""

    tx: Transaction
    policy: Policy
    source: ProtocolStep
    reason: str
    project_id: int | None

    def fire(self, steps: Sequence[ProtocolStep], max_depth: int) -> TriggerDecision | None:
        policy, agent = self.policy, self.policy.target
        if not policy.concerns(self.reason):
            conditions = sorted(policy.reasons)
            message = f"{policy.module_id} is not for {self.reason}"
            return self._pass("trigger_condition_skipped", message, conditions=conditions)
        target = None if agent is None else find_agent(agent, steps)
        if target is None:
            return self._pass("trigger_missing_target", f"no step is done by {agent}")
        if self._left_alone(target):
            message = f"{target.name} is {target.status}"
            return self._pass("trigger_skipped", message, target=target.name, target_status=target.status)
        if target.status is StepStatus.PENDING and _state(target).get("triggered"):
            return self._decision(target, _depth(target))
        depth = _depth(self.source)
        if depth >= max_depth:
            message = f"{depth} triggers followed one another already, so {target.name} is not done"
            return self._pass(
                "trigger_inline_depth_exceeded", message, target=target.name, depth=depth, max_depth=max_depth
            )
        return self._put_in_line(target, depth + 1)

    def _left_alone(self, target: ProtocolStep) -> bool:
        """Nobody reviews the step that has just ended, so it may be its own target."""
        at_work = target.status is StepStatus.RUNNING or (
            target.status is StepStatus.NEEDS_QA
            and not target.awaits_ci
            and target.step_id != self.source.step_id
        )
        return at_work or target.status in _DONE

    def _put_in_line(self, target: ProtocolStep, depth: int) -> TriggerDecision:
        told = f"Triggered by {self.source.name} via {self.policy.module_id}"
        reopen_step(self.tx, target.step_id, reason=told, data={"module_id": self.policy.module_id})
        state = {
            **_state(target),
            "triggered": True,
            "last_triggered_by": self.source.name,
            "inline_trigger_depth": depth,
        }
        change_protocol_step(self.tx, target.step_id, runtime_state=state, summary=told, awaits_ci=False)
        self._tell(
            "trigger_decision",
            f"{target.name} is done next",
            target=target.name,
            target_step_id=target.step_id,
            depth=depth,
        )
        return self._decision(target, depth)

    def _decision(self, target: ProtocolStep, depth: int) -> TriggerDecision:
        return TriggerDecision(self.policy.module_id, target.step_id, target.name, depth, self.reason)

    def _pass(self, type: str, message: str, **data: Any) -> TriggerDecision | None:
        """Tell why this trigger does not fire."""
        self._tell(type, message, **data)
        return None

    def _tell(self, type: str, message: str, **data: Any) -> None:
        told = {
            "module_id": self.policy.module_id,
            "reason": self.reason,
            "agent": self.policy.target,
            **data,
        }
        self.tx.event(
            type,
            run_id=self.source.run_id,
            project_id=self.project_id,
            step_id=self.source.step_id,
            message=message,
            data=told,
        )


def _state(step: ProtocolStep) -> dict[str, Any]:
    return dict(step.runtime_state) if isinstance(step.runtime_state, dict) else {}


def _depth(step: ProtocolStep) -> int:
    depth = _state(step).get("inline_trigger_depth")
    return depth if isinstance(depth, int) else 0
