"""Whether one side is better than the other beyond noise, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.judges.comparison import Comparison, Decision, Incumbent, Rule, average, compare
from ratchet.kernel import Direction
from ratchet.workflows.evolution.rounds import Round, Side

ALPHA = 0.01
"""The chance to call a variant better in anything when it is better in nothing, over all measures together."""
LEAST_GAIN = 0.05
"""A gain below a twentieth is not worth a new version."""
MOST_LOSS = 0.25
"""How much worse than before a variant may be in one thing for being better in another."""

# What is measured for each call, and how it is told. Less is better.
_TAKEN = {
    "cpu_ms": "CPU time",
    "wall_ms": "time",
    "peak_bytes": "memory",
    "cost_microusd": "money",
    "tokens": "tokens",
}
_SCORE, _TESTS = "score", "tests"


@dataclass(frozen=True, slots=True)
class Gain:
    """How a variant compares in one measure. `gain` is the part that is saved (0.9: a tenth is left), or for the score
    how much higher it is; below zero it is worse."""

    measure: str
    incumbent: float
    variant: float
    gain: float
    p_value: float
    better: bool
    worse: bool

    def told(self) -> str:
        if self.measure == _SCORE:
            return f"score {self.incumbent:.3g} → {self.variant:.3g} (p = {self.p_value:.2g})"
        if self.measure == _TESTS:
            return "the tool's tests pass now"
        how = f"{abs(self.gain):.1%} {'less' if self.gain >= 0 else 'more'} {_TAKEN[self.measure]}"
        return f"{how} (p = {self.p_value:.2g})"


def measure_gains(rounds: Sequence[Round]) -> list[Gain]:
    """Every measure that both sides have in every round."""
    samples = {name: _samples(rounds, name) for name in _TAKEN}
    known = {name: found for name, found in samples.items() if found is not None}
    if "cost_microusd" in known:
        # Money is what tokens are counted for.
        known.pop("tokens", None)
    scores = {side: tuple(each.score(side) for each in rounds) for side in Side}
    share = ALPHA / (len(known) + 1)
    gains = [_saved(name, found, share) for name, found in known.items()]
    return [*gains, _scored(scores, share)]


def is_hopeless(gains: Sequence[Gain]) -> bool:
    """Whether nothing looks better so far. Ending early can only lose a good variant, never take a bad one."""
    return all(gain.gain <= (0.0 if gain.measure == _SCORE else LEAST_GAIN) for gain in gains)


def mended_tests() -> Gain:
    """A variant that passes the tool's tests where the incumbent does not."""
    return Gain(_TESTS, 0.0, 1.0, 1.0, 0.0, better=True, worse=False)


def _samples(rounds: Sequence[Round], measure: str) -> dict[Side, tuple[float, ...]] | None:
    """What each side took, round by round; nothing where it was not measured or nothing was taken."""
    found: dict[Side, tuple[float, ...]] = {}
    for side in Side:
        taken = [each.total(side, measure) for each in rounds]
        if any(not amount for amount in taken):
            return None
        found[side] = tuple(amount for amount in taken if amount is not None)
    return found


def _saved(measure: str, samples: dict[Side, tuple[float, ...]], alpha: float) -> Gain:
    """Amounts are compared by their ratio, so that a twentieth is a twentieth of little and of much."""
    logs = {side: tuple(math.log(amount) for amount in samples[side]) for side in Side}
    better = _compared(
        logs[Side.VARIANT], logs[Side.INCUMBENT], Direction.MIN, -math.log1p(-LEAST_GAIN), alpha
    )
    worse = _compared(logs[Side.INCUMBENT], logs[Side.VARIANT], Direction.MIN, math.log1p(MOST_LOSS), alpha)
    return Gain(
        measure,
        average(samples[Side.INCUMBENT]),
        average(samples[Side.VARIANT]),
        1.0 - math.exp(-(better.effect or 0.0)),
        _chance(better),
        better.decision is Decision.BETTER,
        worse.decision is Decision.BETTER,
    )


def _scored(scores: dict[Side, tuple[float, ...]], alpha: float) -> Gain:
    compared = _compared(scores[Side.VARIANT], scores[Side.INCUMBENT], Direction.MAX, 0.0, alpha)
    old, new = average(scores[Side.INCUMBENT]), average(scores[Side.VARIANT])
    better = compared.decision is Decision.BETTER
    return Gain(_SCORE, old, new, new - old, _chance(compared), better, new < old)


def _compared(
    samples: tuple[float, ...], others: tuple[float, ...], direction: Direction, least: float, alpha: float
) -> Comparison:
    """One look at all rounds."""
    rule = Rule(direction, least, alpha, least=len(samples), most=len(samples))
    return compare(samples, Incumbent(Side.INCUMBENT, others), rule)


def _chance(compared: Comparison) -> float:
    return 1.0 if compared.p_value is None else compared.p_value
