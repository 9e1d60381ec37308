"""What a search has learned so far, as one text that the next session goes on with.

It is a pure function of what it was told, in that order. Any number of workers may draw from one state at once: which
point each gets is decided by the number of its trial. Told the same, they all come to the same next state.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ratchet.engines.search.distribution import Distribution
from ratchet.engines.search.space import Point, Space

_FORMAT = "search-1"
_LARGEST = 20_000_000
_MOST_POPULATION = 256


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried, and how good it is: more is better, nothing is a failure."""

    number: int
    point: Point
    worth: float | None


@dataclass(frozen=True, slots=True)
class State:
    """`tried` are the trials of this generation that were told. The distribution changes when they are enough."""

    signature: str
    seed: int
    generation: int
    restarts: int
    asked: int
    distribution: Distribution
    tried: tuple[Trial, ...] = ()

    @classmethod
    def begin(cls, space: Space, seed: int) -> State:
        return cls(space.signature, seed, 0, 0, 0, Distribution.around(space, space.present))

    def draw(self, space: Space, trial: int, again: int = 0) -> Point:
        """The point of this trial, the same whoever asks and however often; `again` gives another one for it."""
        return self.distribution.draw(space, _seed(self.seed, self.generation, trial, again))

    def tell(self, space: Space, generation: int, trial: Trial) -> State:
        """Take in how a trial ended. One of an earlier generation comes too late, and twice told counts once."""
        if generation != self.generation or trial.number in {each.number for each in self.tried}:
            return self
        told = replace(self, tried=(*self.tried, trial))
        return told._advanced(space) if len(told.tried) == self.distribution.population else told

    def counted(self, trial: int) -> State:
        """With this trial drawn, so that the next one gets another number."""
        return replace(self, asked=max(self.asked, trial + 1))

    def _advanced(self, space: Space) -> State:
        """The next generation, from a whole population of trials."""
        following = replace(self, generation=self.generation + 1, tried=())
        worths = [-math.inf if each.worth is None else each.worth for each in self.tried]
        if min(worths) == max(worths):
            return following  # they differ in nothing, so there is nothing to learn
        # Of equals the one that was told first: a draw, as good as any, and the same everywhere.
        order = sorted(range(len(worths)), key=lambda index: (-worths[index], index))
        learned = self.distribution.learn(space, [self.tried[index].point for index in order])
        if learned.settled(space):
            return following._restarted(space)
        return replace(following, distribution=learned)

    def _restarted(self, space: Space) -> State:
        """Begin anew elsewhere with a larger population: what has settled finds nothing more."""
        import numpy as np

        restarts = self.restarts + 1
        chance = np.random.RandomState(_seed(self.seed, restarts))
        centre = Point(tuple(float(place) for place in chance.rand(len(space.present.places))), ())
        population = min(2 * self.distribution.population, _MOST_POPULATION)
        return replace(self, restarts=restarts, distribution=Distribution.around(space, centre, population))

    def encode(self) -> str:
        document = json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)
        packed = base64.urlsafe_b64encode(zlib.compress(document.encode(), 9)).decode()
        return f"{_FORMAT}.{_digest(packed)}.{packed}"

    @classmethod
    def decode(cls, text: str, space: Space) -> Self:
        """Raises `ValueError` for anything that `encode` did not make, or that belongs to another space."""
        name, digest, packed = (*text.split("."), "", "")[:3]
        if name != _FORMAT or digest != _digest(packed):
            raise ValueError("it is not the state of a search, or it is damaged")
        try:
            unpacking = zlib.decompressobj()
            content = unpacking.decompress(base64.urlsafe_b64decode(packed), _LARGEST)
            data: dict[str, Any] = json.loads(content)
            if data["signature"] != space.signature:
                raise ValueError("the program declares other constants than when the search began")
            state = cls(
                signature=data["signature"],
                seed=int(data["seed"]),
                generation=int(data["generation"]),
                restarts=int(data["restarts"]),
                asked=int(data["asked"]),
                distribution=Distribution(
                    int(data["distribution"]["population"]), data["distribution"]["known"]
                ),
                tried=tuple(_trial(space, each) for each in data["tried"]),
            )
            state.draw(space, 0)
        except (KeyError, TypeError, AttributeError, IndexError, zlib.error) as error:
            raise ValueError(f"it is damaged: {error!r}") from error
        return state


def _trial(space: Space, data: Mapping[str, Any]) -> Trial:
    worth = data["worth"]
    return Trial(int(data["number"]), space.point(data["point"]), None if worth is None else float(worth))


def _seed(*numbers: int) -> int:
    told = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:4])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
