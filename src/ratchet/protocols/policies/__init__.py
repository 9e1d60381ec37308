"""Policies of steps: loops that go back, and triggers that have other steps done."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.protocols.policies.looping import LoopDecision, apply_loop, may_loop
    from ratchet.protocols.policies.policy import Behavior, Policy
    from ratchet.protocols.policies.reading import policy_problems, read_policies
    from ratchet.protocols.policies.triggering import TriggerDecision, apply_triggers
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Behavior",
    "LoopDecision",
    "Policy",
    "TriggerDecision",
    "apply_loop",
    "apply_triggers",
    "may_loop",
    "policy_problems",
    "read_policies",
]
