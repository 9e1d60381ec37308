"""What an honest recipe scores, so that a score can be called impossible."""

from __future__ import annotations

from dataclasses import dataclass, field

from ratchet.judges.comparison import spread
from ratchet.kernel import Direction
from ratchet.research.checking.bench import Bench

_REPEATS = 3
_SPREADS = 6.0


@dataclass(slots=True)
class Honesty:
    """The scores of the baseline with one seed. They grow while it is measured again and again."""

    bench: Bench
    seed: int
    scores: list[float] = field(default_factory=list)

    async def learn(self) -> None:
        """Raises `Unmeasured`."""
        for _ in range(_REPEATS):
            await self.again()

    async def again(self) -> float:
        score = (await self.bench.measure(seed=self.seed)).score
        self.scores.append(score)
        return score

    def is_beaten_by(self, score: float) -> bool:
        """Whether a score is better than any that the baseline could have."""
        direction = self.bench.task.direction
        best = max(self.scores) if direction is Direction.MAX else min(self.scores)
        return direction.gain(score, best) > self._margin(self.scores)

    async def still_holds(self) -> str | None:
        """Measure once more. What is wrong if it is not as before; chance may explain two strange scores, not three."""
        known = list(self.scores)
        for _ in range(_REPEATS):
            score = await self.again()
            if min(known) - self._margin(known) <= score <= max(known) + self._margin(known):
                return None
        return f"the honest recipe scored {known[-1]!r} before and {score!r} after it"

    @staticmethod
    def _margin(scores: list[float]) -> float:
        return _SPREADS * spread(tuple(scores))[1]
