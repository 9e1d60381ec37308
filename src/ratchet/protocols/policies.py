"""Policies of steps: as people and CodeMachine write them, and the triggers, which start the step of another agent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ratchet.kernel import Misuse, StepId, StepStatus, shortened
from ratchet.ledger import Transaction
from ratchet.ledger.protocols import (
    ProtocolStep,
    change_protocol_step,
    get_protocol_step,
    list_protocol_steps,
)
from ratchet.ledger.runs import lock_run
from ratchet.ledger.statuses import reopen_step


class Behavior(StrEnum):
    LOOP = "loop"
    TRIGGER = "trigger"


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """What is to happen when a step ends in one of the `reasons`; none means however it ends.

    A loop without `max_iterations` has no end of its own. `skip_steps` has indexes, and names or ids of steps.
    """

    module_id: str
    behavior: Behavior
    action: str | None = None
    max_iterations: int | None = None
    step_back: int = 1
    skip_steps: frozenset[int | str] = frozenset()
    trigger_agent_id: str | None = None
    target_agent_id: str | None = None
    reasons: frozenset[str] = frozenset()

    @property
    def target(self) -> str | None:
        """The agent that a trigger has do its step."""
        return self.trigger_agent_id or self.target_agent_id

    def concerns(self, reason: str) -> bool:
        return not self.reasons or reason.lower() in self.reasons


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WHOLE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
# Other names under which CodeMachine has the same.
_ALIASES = {
    "module": "module_id",
    "type": "behavior",
    "skip": "skip_steps",
    "loop_skip": "skip_steps",
    "loop_steps": "step_back",
    "loop_max_iterations": "max_iterations",
}
_REASON_KEYS = ("on", "reason", "event", "when", "name")
_DEEPEST = 5


def read_policies(raw: Any) -> list[StepPolicy]:
    """The policies that can be understood, in their order. Others have no effect: nothing is looped by guessing."""
    return [policy for policy, _ in _read_all(raw) if policy is not None]


def policy_problems(raw: Any, *, labels: frozenset[int | str] = frozenset()) -> list[str]:
    """One sentence for each policy that cannot be understood, or that leaves out its own step.

    `labels` are the index, name and id of the step that has the policies.
    """
    problems = []
    for policy, problem in _read_all(raw):
        if policy is None:
            problems.append(problem)
        elif policy.behavior is Behavior.LOOP and policy.skip_steps & labels:
            problems.append(
                f"loop {policy.module_id} skips its own step, which would then never be done again"
            )
        elif policy.behavior is Behavior.TRIGGER and policy.target is None:
            problems.append(f"trigger {policy.module_id} names no agent")
    return problems


def read_reasons(value: Any, depth: int = 0) -> frozenset[str]:
    """The reasons in a condition: a text, a table that has one, or a list of either. Case does not count."""
    if value is None or depth > _DEEPEST:
        return frozenset()
    if isinstance(value, str):
        return frozenset({value.strip().lower()} - {""})
    if isinstance(value, Mapping):
        value = [value[key] for key in _REASON_KEYS if key in value]
    if isinstance(value, Sequence):
        return frozenset().union(*(read_reasons(each, depth + 1) for each in value))
    return frozenset()


def _read_all(raw: Any) -> Iterator[tuple[StepPolicy | None, str]]:
    given = [raw] if isinstance(raw, Mapping) else raw if isinstance(raw, list | tuple) else []
    for number, each in enumerate(given, start=1):
        try:
            yield _read(each, number), ""
        except Misuse as error:
            yield None, f"policy {number}: {error}"


def _read(raw: Any, number: int) -> StepPolicy:
    if not isinstance(raw, Mapping):
        raise Misuse(f"it is no object but {type(raw).__name__}")
    said = _flat(raw)
    back = _whole(said, "step_back")
    return StepPolicy(
        module_id=_text(said, "module_id") or _text(said, "id") or _text(said, "name") or f"policy-{number}",
        behavior=_behavior(said),
        action=_text(said, "action"),
        max_iterations=_whole(said, "max_iterations"),
        step_back=back if back is not None and back > 0 else 1,
        skip_steps=_skipped(said.get("skip_steps")),
        trigger_agent_id=_text(said, "trigger_agent_id"),
        target_agent_id=_text(said, "target_agent_id"),
        reasons=_reasons(said),
    )


def _flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys in one spelling, with those of a nested behavior among them."""
    said = _plain_keys(raw)
    inner = said.get("behavior")
    return {**said, "behavior": None, **_plain_keys(inner)} if isinstance(inner, Mapping) else said


def _plain_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    said = {_HUMP.sub("_", str(key)).replace("-", "_").lower(): value for key, value in raw.items()}
    others = {name: said[other] for other, name in _ALIASES.items() if other in said}
    return {**others, **said}


def _behavior(said: Mapping[str, Any]) -> Behavior:
    value = said.get("behavior")
    try:
        return Behavior(str(value).strip().lower())
    except ValueError:
        raise Misuse(f"its behavior is {_shown(value)}, not loop or trigger") from None


def _reasons(said: Mapping[str, Any]) -> frozenset[str]:
    """A condition that says nothing that can be understood must not mean `always`."""
    given = [said[key] for key in ("condition", "conditions") if said.get(key) not in (None, "", [], {})]
    reasons = frozenset().union(*map(read_reasons, given))
    if given and not reasons:
        raise Misuse(f"its condition {_shown(given[0])} names no reason")
    return reasons


def _whole(said: Mapping[str, Any], key: str) -> int | None:
    value = said.get(key)
    if value is None:
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"its {key} is {_shown(value)}, which is no whole number")
    return value


def _skipped(value: Any) -> frozenset[int | str]:
    given = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    skipped: set[int | str] = set()
    for each in given:
        if isinstance(each, str) and each.strip() and not _WHOLE.fullmatch(each.strip()):
            skipped.add(each.strip())
        else:
            number = _whole({"skip_steps": each}, "skip_steps")
            if number is not None:
                skipped.add(number)
    return frozenset(skipped)


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value.strip() if isinstance(value, str) and value.strip() else None


def _shown(value: Any) -> str:
    shown = repr(value)
    return shortened(shown, 80)


def find_agent(agent: str, steps: Sequence[ProtocolStep]) -> ProtocolStep | None:
    """The first step of an agent; the whole name of a step, or its id, will do too."""
    of_agent = next((step for step in steps if step.agent == agent), None)
    return of_agent or next((step for step in steps if agent in (step.name, _id(step))), None)


def indexes_of(skipped: Iterable[int | str], steps: Sequence[ProtocolStep]) -> frozenset[int]:
    """The indexes that a policy means. A name that no step has means nothing."""
    numbers = {each for each in skipped if isinstance(each, int)}
    names = {each for each in skipped if isinstance(each, str)}
    named = {step.step_index for step in steps if names & {step.name, step.agent, _id(step)}}
    return frozenset(numbers | named)


def _id(step: ProtocolStep) -> str:
    found = step.spec.get("id") if isinstance(step.spec, dict) else None
    return found if isinstance(found, str) else step.name


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
    """Queue the target of the first trigger that may fire, marked to run out of turn. Nothing if none may.

    At most `max_depth` triggers follow one another. What is completed, cancelled or being worked on is left alone. A
    target that a trigger queued before, and that has not begun, stays as it is.
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
    policy: StepPolicy
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
        return self._queue_step(target, depth + 1)

    def _left_alone(self, target: ProtocolStep) -> bool:
        """No review of the step that has just ended is running, so it may be its own target."""
        at_work = target.status is StepStatus.RUNNING or (
            target.status is StepStatus.NEEDS_QA
            and not target.awaits_ci
            and target.step_id != self.source.step_id
        )
        return at_work or target.status in _DONE

    def _queue_step(self, target: ProtocolStep, depth: int) -> TriggerDecision:
        message = f"Triggered by {self.source.name} via {self.policy.module_id}"
        reopen_step(self.tx, target.step_id, reason=message, data={"module_id": self.policy.module_id})
        state = {
            **_state(target),
            "triggered": True,
            "last_triggered_by": self.source.name,
            "inline_trigger_depth": depth,
        }
        change_protocol_step(self.tx, target.step_id, runtime_state=state, summary=message, awaits_ci=False)
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
        details = {
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
            data=details,
        )


def _state(step: ProtocolStep) -> dict[str, Any]:
    return dict(step.runtime_state) if isinstance(step.runtime_state, dict) else {}


def _depth(step: ProtocolStep) -> int:
    depth = _state(step).get("inline_trigger_depth")
    return depth if isinstance(depth, int) else 0
