"""Challengers of known worth, measured with drawn noise and decided on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from ratchet.kernel import Direction
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, Decided, calibrate, decide
from tests.research.decision.scripted import ScriptedMeter

Draw = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    return chance.gauss(0.0, 1.0)


def heavy(chance: random.Random) -> float:
    """Now and then far off, as times on a busy machine are."""
    return chance.gauss(0.0, 4.0 if chance.random() < 0.1 else 0.6)


def coarse(chance: random.Random) -> float:
    """Whole steps of twice the spread, so that rounds often agree by chance."""
    return 2.0 * round(chance.gauss(0.0, 1.0) / 2.0)


@dataclass(frozen=True)
class World:
    """Scores are the commit's worth, plus what the seed brings to all alike, plus noise.

    In a `seeded` world the same commit has the same noise with the same seed.
    """

    gain: float
    draw: Draw = normal
    shared: float = 0.0
    wilder: float = 1.0
    seeded: bool = False

    def meter(self, chance: random.Random) -> ScriptedMeter:
        luck: dict[int, float] = {}
        drawn: dict[tuple[str, int], float] = {}

        def score(commit: str, seed: int, _held_out: bool) -> float:
            common = self.shared * luck.setdefault(seed, chance.gauss(0.0, 1.0))
            noise = self.draw(chance)
            if self.seeded:
                noise = drawn.setdefault((commit, seed), noise)
            own = (1.0 - self.shared**2) ** 0.5 * noise
            return common + (self.gain + self.wilder * own if commit == "new" else own)

        return ScriptedMeter(score)


@dataclass(frozen=True)
class Outcome:
    rulings: list[Decided]
    measurements: float

    @property
    def kept(self) -> list[Decided]:
        return [each for each in self.rulings if each.kept]

    @property
    def rate(self) -> float:
        return len(self.kept) / len(self.rulings)


def simulate(world: World, *, trials: int) -> Outcome:
    """As many runs of one trial each: calibrate the baseline, then decide on a challenger of known worth."""
    chance = random.Random(2024)
    rule = KeepRule()

    async def all_of_them() -> Outcome:
        rulings, asked = [], 0
        for _ in range(trials):
            meter = world.meter(chance)
            baseline = await calibrate(meter, "best", rule)
            champion = Champion.of(0, "best", baseline.record())
            before = len(meter.asked)
            rulings.append(await decide(meter, "new", champion, rule, Direction.MAX, baseline.noise, trial=1))
            asked += len(meter.asked) - before
        return Outcome(rulings, asked / trials)

    return asyncio.run(all_of_them())
