"""What a decision asks for, and the rounds in which both sides are measured."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from ratchet.judges.comparison import average
from ratchet.kernel import Direction, exp_id
from ratchet.research.adapter import KeepRule
from ratchet.research.keeping.decided import Champion, Phase, Side
from ratchet.research.keeping.noise import Noise

VOID_ROUNDS = 3
"""How often the champion may fail before nothing can be decided."""
_IN_TURN = ((Side.CHALLENGER, Side.CHAMPION), (Side.CHAMPION, Side.CHALLENGER))


@dataclass(frozen=True, slots=True)
class Ask:
    """Measure these sides with this seed, in this order."""

    sides: tuple[Side, ...]
    phase: Phase
    seed: int


Scores = Mapping[Side, float]
"""The answer: a score for each side. The champion's is absent when it could not be measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be decided. `trial` is the challenger's number, which gives it seeds of its own."""

    commit: str
    champion: Champion
    rule: KeepRule
    direction: Direction
    noise: Noise
    trial: int

    @property
    def best(self) -> str:
        return exp_id(self.champion.number)

    @property
    def wanted(self) -> str:
        """The smallest gain that counts, as a sentence ends with it."""
        return f" by more than {self.rule.min_effect:g}" if self.rule.min_effect else ""

    def gain(self, score: float, other: float) -> float:
        return self.direction.gain(score, other)

    def seeds(self) -> Iterator[int]:
        """The seeds of this trial's rounds. No other trial has them, so that nobody is lucky with them twice."""
        return count(self.rule.seed + 1 + self.trial * (self.rule.most + VOID_ROUNDS))


class Rounds:
    """The rounds so far in which both sides were measured."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.seeds: list[int] = []
        self.challenger: list[float] = []
        self.champion: list[float] = []
        self.gains: list[float] = []

    @property
    def n(self) -> int:
        return len(self.gains)

    @property
    def gain(self) -> float:
        return average(tuple(self.gains))

    @property
    def score(self) -> float:
        return average(tuple(self.challenger))

    @property
    def against(self) -> float:
        return average(tuple(self.champion))

    def another(self, phase: Phase, seeds: Iterator[int]) -> Generator[Ask, Scores, None]:
        """Both with one seed, the order turned round each time. A round without the champion does not count."""
        for seed in seeds:
            scores = yield Ask(_IN_TURN[seed % 2], phase, seed)
            if len(scores) == len(Side):
                break
        self.seeds.append(seed)
        self.challenger.append(scores[Side.CHALLENGER])
        self.champion.append(scores[Side.CHAMPION])
        self.gains.append(self._case.gain(self.challenger[-1], self.champion[-1]))
