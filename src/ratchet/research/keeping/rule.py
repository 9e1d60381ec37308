"""Whether a rule of keeping can be meant."""

from __future__ import annotations

import math

from ratchet.kernel import Misuse
from ratchet.research.adapter import KeepRule

CONFIDENT, STRICT = "confident", "strict"
_MOST_ROUNDS = 1000


def check_rule(rule: KeepRule) -> None:
    """Raises `Misuse` for a rule that decides nothing, or not what its author thinks."""
    if rule.policy not in (CONFIDENT, STRICT):
        raise Misuse(f"there is no keep policy {rule.policy!r}", hint=f"take {CONFIDENT} or {STRICT}")
    for name in ("min_effect", "held_out_tolerance"):
        value = getattr(rule, name)
        if not (math.isfinite(value) and value >= 0):
            raise Misuse(f"keep.{name} must be 0 or more, not {value!r}")
    if not 0 < rule.alpha < 0.5:
        raise Misuse(f"keep.alpha must lie between 0 and 0.5, not {rule.alpha!r}")
    if rule.seed < 0:
        raise Misuse(f"keep.seed must be 0 or more, not {rule.seed}")
    if rule.policy == STRICT or rule.deterministic:
        return
    if not 2 <= rule.least <= rule.most <= _MOST_ROUNDS:
        raise Misuse(
            f"a noisy score is measured in 2 to {_MOST_ROUNDS} rounds, not {rule.least} to {rule.most}",
            hint="set keep.least and keep.most, or keep.deterministic = true if one measurement is enough",
        )
    if rule.baseline_repeats < 2:
        raise Misuse(
            f"keep.baseline_repeats is {rule.baseline_repeats}; noise shows only in 2 or more measurements",
            hint="set keep.baseline_repeats to 2 or more, or keep.deterministic = true",
        )
