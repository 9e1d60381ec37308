"""Where good points are likely: CMA-ES for numbers, steps and options at once (CatCMA with margin, from `cmaes`).

A value, not an object that changes: drawing leaves it as it is, and learning makes another. Everything in it is plain
data, so that what is written down and read again goes on exactly as if it had never been away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.engines.search.space import Point, Space

if TYPE_CHECKING:
    from cmaes import CatCMAwM

# What the algorithm knows, by the names that it has there. The rest follows from the space and the population.
_KNOWN = ("g", "mean", "sigma", "C", "p_sigma", "pc", "A", "iqhist_values")
_KNOWN_OF_STEPS = ("pmut", "int_succ")
_KNOWN_OF_OPTIONS = ("q", "Delta", "gamma", "s", "delta", "eps")
_SPREAD = 0.25
# Below this share of its range, a difference of a number is not even written down.
_SETTLED = 1e-7


@dataclass(frozen=True, slots=True)
class Distribution:
    population: int
    known: Mapping[str, Any]

    @classmethod
    def around(cls, space: Space, centre: Point, population: int | None = None) -> Distribution:
        return _plain(_optimizer(space, centre, population), space)

    def draw(self, space: Space, seed: int) -> Point:
        """A point; the same one for the same seed."""
        optimizer = self._revived(space)
        optimizer.reseed_rng(seed)
        solution = optimizer.ask()
        places = () if solution._v_raw is None else tuple(float(place) for place in solution._v_raw)
        options = () if solution.c is None else tuple(int(row.argmax()) for row in solution.c)
        return Point(places, options)

    def learn(self, space: Space, ranked: Sequence[Point]) -> Distribution:
        """What is likely after a whole population was tried; the best point comes first."""
        import numpy as np

        optimizer = self._revived(space)
        # Ranks in the place of scores: only the order counts, and a trial that failed has no score.
        with np.errstate(all="ignore"):
            optimizer.tell([(_solution(space, point), float(rank)) for rank, point in enumerate(ranked)])
        return _plain(optimizer, space)

    def settled(self, space: Space) -> bool:
        """Whether it would go on drawing the same numbers, or has lost its way. Steps and options keep a margin."""
        import numpy as np

        if not all(np.isfinite(value).all() for value in self.known.values()):
            return True
        count = len(space.lines)
        if not count:
            return False
        spread = self.known["sigma"] * np.sqrt(np.diag(np.array(self.known["C"])))[:count]
        return bool((spread < _SETTLED).all())

    def _revived(self, space: Space) -> CatCMAwM:
        import numpy as np

        optimizer = _optimizer(space, space.present, self.population)
        for name in _names(space):
            old, new = getattr(optimizer, f"_{name}"), self.known[name]
            if isinstance(old, np.ndarray):
                new = np.array(new, dtype=old.dtype)
                if new.shape != old.shape:
                    raise ValueError(f"{name} has the shape {new.shape}, not {old.shape}")
            setattr(optimizer, f"_{name}", new)
        return optimizer


def _optimizer(space: Space, centre: Point, population: int | None) -> CatCMAwM:
    import numpy as np
    from cmaes import CatCMAwM

    count = len(centre.places)
    return CatCMAwM(
        x_space=[[0.0, 1.0]] * len(space.lines) or None,
        z_space=[each.grid for each in space.steps] or None,
        c_space=[len(each.literals) for each in space.options] or None,
        population_size=population,
        mean=np.array(centre.places),
        sigma=1.0,
        cov=np.diag(np.full(count, _SPREAD**2)),
    )


def _plain(optimizer: CatCMAwM, space: Space) -> Distribution:
    import numpy as np

    known = {}
    for name in _names(space):
        value = getattr(optimizer, f"_{name}")
        known[name] = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return Distribution(optimizer.population_size, known)


def _names(space: Space) -> tuple[str, ...]:
    return (
        *(_KNOWN if space.lines or space.steps else ("g",)),
        *(_KNOWN_OF_STEPS if space.steps else ()),
        *(_KNOWN_OF_OPTIONS if space.options else ()),
    )


def _solution(space: Space, point: Point) -> CatCMAwM.Solution:
    import numpy as np
    from cmaes import CatCMAwM

    widest = max((len(each.literals) for each in space.options), default=0)
    chosen = np.array([[index == option for index in range(widest)] for option in point.options])
    return CatCMAwM.Solution(
        c=chosen if space.options else None,
        _v_raw=np.array(point.places) if point.places else None,
    )
