"""Whether one side is better than the other beyond noise, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.judges.comparison import Look, average, look, spread
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
    if any(each.total(side, "unpriced_tokens") for each in rounds for side in Side):
        # Who asks a model of unknown price would look cheap.
        known.pop("cost_microusd", None)
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
    saved = [old - new for old, new in zip(logs[Side.INCUMBENT], logs[Side.VARIANT], strict=True)]
    noise = spread(logs[Side.INCUMBENT])[1]
    better = _looked(saved, -math.log1p(-LEAST_GAIN), noise, alpha)
    worse = _looked([-each for each in saved], math.log1p(MOST_LOSS), noise, alpha)
    return Gain(
        measure,
        average(samples[Side.INCUMBENT]),
        average(samples[Side.VARIANT]),
        1.0 - math.exp(-better.gain),
        better.p_value,
        better.p_value <= alpha,
        worse.p_value <= alpha,
    )


def _scored(scores: dict[Side, tuple[float, ...]], alpha: float) -> Gain:
    gains = [new - old for old, new in zip(scores[Side.INCUMBENT], scores[Side.VARIANT], strict=True)]
    looked = _looked(gains, 0.0, spread(scores[Side.INCUMBENT])[1], alpha)
    old, new = average(scores[Side.INCUMBENT]), average(scores[Side.VARIANT])
    return Gain(_SCORE, old, new, new - old, looked.p_value, looked.p_value <= alpha, new < old)


def _looked(gains: Sequence[float], least: float, noise_sd: float, alpha: float) -> Look:
    """One look at all rounds."""
    return look(gains, above=least, noise_sd=noise_sd, alpha=alpha, share=1.0)
