"""A meter whose scores a test writes down or draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ratchet.research.measurement.result import Measurement, Unmeasured

Score = Callable[[str, int, bool], float | Unmeasured]


@dataclass
class ScriptedMeter:
    """Asks `score` for each measurement of (commit, seed, held_out), and remembers what was asked of it."""

    score: Score
    asked: list[tuple[str, int, bool]] = field(default_factory=list)
    hash: str = "e" * 64

    async def preflight(self, commit: str, base: str) -> None:
        """Everything is worth a measurement."""

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        self.asked.append((commit, seed, held_out))
        score = self.score(commit, seed, held_out)
        if isinstance(score, Unmeasured):
            raise score
        return Measurement(
            commit=commit,
            seed=seed,
            held_out=held_out,
            score=score,
            measurements={"twice": 2 * score},
            wall_ms=1.5,
            facts={"exit_code": 0},
        )
