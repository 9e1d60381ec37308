"""All constants of a program as one space: its points, where good ones are likely (CMA-ES), and what was learned."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ratchet.engines.search.program import Constant, LiteralChoice, NumberRange
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from cmaes import CatCMAwM


# More whole numbers than this are searched as if they were a line, and rounded.
_FEW = 64


@dataclass(frozen=True, slots=True)
class NumberLine:
    """Any number of a range, as a place from 0 to 1."""

    constant: Constant
    domain: NumberRange

    @property
    def present(self) -> float:
        assert isinstance(self.constant.present, int | float)
        return _place(self.domain, self.constant.present)

    def literal(self, place: float) -> str:
        """The number at this place as it is written: six digits are finer than any measurement."""
        low, high = self.domain.low, self.domain.high
        place = min(max(place, 0.0), 1.0)
        value = low * (high / low) ** place if self.domain.log else low + (high - low) * place
        if self.domain.whole:
            return repr(min(max(round(value), int(low)), int(high)))
        return repr(min(max(float(f"{value:.6g}"), float(low)), float(high)))


@dataclass(frozen=True, slots=True)
class Steps:
    """A few whole numbers in their order, each at its place from 0 to 1."""

    constant: Constant
    domain: NumberRange

    @property
    def numbers(self) -> range:
        return range(int(self.domain.low), int(self.domain.high) + 1)

    @property
    def grid(self) -> list[float]:
        return [_place(self.domain, number) for number in self.numbers]

    @property
    def present(self) -> float:
        assert isinstance(self.constant.present, int)
        return _place(self.domain, self.constant.present)

    def literal(self, place: float) -> str:
        return repr(min(self.numbers, key=lambda number: abs(_place(self.domain, number) - place)))


@dataclass(frozen=True, slots=True)
class Options:
    """A few literals without an order, by number."""

    constant: Constant
    literals: tuple[str, ...]
    present: int

    def literal(self, index: int) -> str:
        return self.literals[index]


def dimension(constant: Constant) -> NumberLine | Steps | Options:
    domain = constant.domain
    if isinstance(domain, LiteralChoice):
        return Options(constant, domain.options, domain.index(constant.present) or 0)
    count = int(domain.high) - int(domain.low) + 1
    if not domain.whole or count > _FEW:
        return NumberLine(constant, domain)
    if count == 2:
        # Between two there is no order to follow.
        low, high = int(domain.low), int(domain.high)
        return Options(constant, (repr(low), repr(high)), int(constant.present == high))
    return Steps(constant, domain)


def _place(domain: NumberRange, value: float) -> float:
    if domain.log:
        return math.log(value / domain.low) / math.log(domain.high / domain.low)
    return (value - domain.low) / (domain.high - domain.low)


_MOST = 100


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """The places of lines, then of steps, as they were drawn, also out of bounds; and the number of each option."""

    places: tuple[float, ...]
    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Space:
    dimensions: tuple[NumberLine | Steps | Options, ...]

    @classmethod
    def of(cls, constants: Iterable[Constant]) -> Space:
        """In the order of the program. Raises `Misuse` for too many."""
        dimensions = tuple(dimension(each) for each in constants)
        if len(dimensions) > _MOST:
            raise Misuse(
                f"{len(dimensions)} constants are too many to be searched at once; at most {_MOST} are",
                hint="name fewer files, or declare fewer constants",
            )
        return cls(dimensions)

    @property
    def lines(self) -> list[NumberLine]:
        return [each for each in self.dimensions if isinstance(each, NumberLine)]

    @property
    def steps(self) -> list[Steps]:
        return [each for each in self.dimensions if isinstance(each, Steps)]

    @property
    def options(self) -> list[Options]:
        return [each for each in self.dimensions if isinstance(each, Options)]

    @property
    def present(self) -> SearchPoint:
        """Where the program is now."""
        places = [each.present for each in self.lines] + [each.present for each in self.steps]
        return SearchPoint(tuple(places), tuple(each.present for each in self.options))

    @property
    def signature(self) -> str:
        """Names the space: in another one, what was learned here is worth nothing. Present values do not matter."""
        constants = [each.constant for each in self.dimensions]
        parts = [(each.path, each.name, repr(each.domain)) for each in constants]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def literals(self, point: SearchPoint) -> list[str]:
        """What each constant becomes, in the order of the program."""
        lines = iter(point.places)
        steps = iter(point.places[len(self.lines) :])
        options = iter(point.options)
        return [
            each.literal(next(lines))
            if isinstance(each, NumberLine)
            else each.literal(next(steps))
            if isinstance(each, Steps)
            else each.literal(next(options))
            for each in self.dimensions
        ]

    def point(self, data: Mapping[str, Any]) -> SearchPoint:
        """The point that `data` holds. Raises `ValueError` for one that is not of this space."""
        places = tuple(float(place) for place in data["places"])
        options = tuple(int(option) for option in data["options"])
        counts = [len(each.literals) for each in self.options]
        if len(places) != len(self.lines) + len(self.steps) or len(options) != len(counts):
            raise ValueError("it has another number of constants")
        if not all(math.isfinite(place) and abs(place) < 1e6 for place in places):
            raise ValueError("it lies out of all bounds")
        if not all(0 <= option < count for option, count in zip(options, counts, strict=True)):
            raise ValueError("it has an option that does not exist")
        return SearchPoint(places, options)


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
    def around(cls, space: Space, centre: SearchPoint, population: int | None = None) -> Distribution:
        return _plain(_optimizer(space, centre, population), space)

    def draw(self, space: Space, seed: int) -> SearchPoint:
        """A point; the same one for the same seed."""
        optimizer = self._revived(space)
        optimizer.reseed_rng(seed)
        solution = optimizer.ask()
        places = () if solution._v_raw is None else tuple(float(place) for place in solution._v_raw)
        options = () if solution.c is None else tuple(int(row.argmax()) for row in solution.c)
        return SearchPoint(places, options)

    def learn(self, space: Space, ranked: Sequence[SearchPoint]) -> Distribution:
        """What is likely after a whole population was tried; the best point comes first."""
        import numpy as np

        optimizer = self._revived(space)
        # Ranks in the place of scores: only the order counts, and a trial that failed has no score.
        with np.errstate(all="ignore"):
            optimizer.tell([(_solution(space, point), float(rank)) for rank, point in enumerate(ranked)])
        return _plain(optimizer, space)

    def settled(self, space: Space) -> bool:
        """Whether it would continue to draw the same numbers, or has lost its way. Steps and options keep a margin."""
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


def _optimizer(space: Space, centre: SearchPoint, population: int | None) -> CatCMAwM:
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


def _solution(space: Space, point: SearchPoint) -> CatCMAwM.Solution:
    import numpy as np
    from cmaes import CatCMAwM

    widest = max((len(each.literals) for each in space.options), default=0)
    chosen = np.array([[index == option for index in range(widest)] for option in point.options])
    return CatCMAwM.Solution(
        c=chosen if space.options else None, _v_raw=np.array(point.places) if point.places else None
    )


_FORMAT = "search-1"
_LARGEST = 20_000_000
_MOST_POPULATION = 256


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A point that was tried, and how good it is: more is better, nothing is a failure."""

    number: int
    point: SearchPoint
    worth: float | None


class OtherConstants(ValueError):
    """A state belongs to another space."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """`tried` are the trials of this generation that were told. The distribution changes when they are enough.

    `ranges` are those of constants that nobody declared, by path and name: they lie around the values that these had
    when the search began.
    """

    signature: str
    seed: int
    generation: int
    restarts: int
    asked: int
    distribution: Distribution
    tried: tuple[SearchTrial, ...] = ()
    ranges: Mapping[str, NumberRange] = field(default_factory=dict)

    @classmethod
    def begin(cls, space: Space, seed: int) -> SearchState:
        numbers: list[NumberLine | Steps] = [*space.lines, *space.steps]
        ranges = {each.constant.key: each.domain for each in numbers if each.constant.guessed}
        return cls(space.signature, seed, 0, 0, 0, Distribution.around(space, space.present), ranges=ranges)

    def draw(self, space: Space, trial: int, again: int = 0) -> SearchPoint:
        """The point of this trial, the same for every caller, however often; `again` gives another one for it."""
        return self.distribution.draw(space, _seed(self.seed, self.generation, trial, again))

    def tell(self, space: Space, generation: int, trial: SearchTrial) -> SearchState:
        """Take in how a trial ended. One of an earlier generation comes too late, and twice told counts once."""
        if generation != self.generation or trial.number in {each.number for each in self.tried}:
            return self
        grown = replace(self, tried=(*self.tried, trial))
        return grown._advanced(space) if len(grown.tried) == self.distribution.population else grown

    def counted(self, trial: int) -> SearchState:
        """With this trial drawn, so that the next one gets another number."""
        return replace(self, asked=max(self.asked, trial + 1))

    def _advanced(self, space: Space) -> SearchState:
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

    def _restarted(self, space: Space) -> SearchState:
        """Begin again elsewhere with a larger population: what has settled finds nothing more."""
        import numpy as np

        restarts = self.restarts + 1
        chance = np.random.RandomState(_seed(self.seed, restarts))
        centre = SearchPoint(tuple(float(place) for place in chance.rand(len(space.present.places))), ())
        population = min(2 * self.distribution.population, _MOST_POPULATION)
        return replace(self, restarts=restarts, distribution=Distribution.around(space, centre, population))

    def encode(self) -> str:
        document = json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)
        packed = base64.urlsafe_b64encode(zlib.compress(document.encode(), 9)).decode()
        return f"{_FORMAT}.{_digest(packed)}.{packed}"

    @classmethod
    def decode(cls, text: str, space: Space) -> Self:
        """Raises `ValueError` for anything that `encode` did not make, and `OtherConstants` for another space."""
        data = _unpacked(text)
        try:
            if data["signature"] != space.signature:
                raise OtherConstants("the program declares other constants than when the search began")
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
                ranges=_ranges(data),
            )
            state.draw(space, 0)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"it is damaged: {error!r}") from error
        return state


def ranges_of(text: str) -> Mapping[str, NumberRange]:
    """The ranges in the state that `text` encodes; none of what is no such state."""
    try:
        return _ranges(_unpacked(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _ranges(data: Mapping[str, Any]) -> dict[str, NumberRange]:
    return {name: NumberRange(**each) for name, each in data.get("ranges", {}).items()}


def _unpacked(text: str) -> dict[str, Any]:
    name, digest, packed = (*text.split("."), "", "")[:3]
    if name != _FORMAT or digest != _digest(packed):
        raise ValueError("it is not the state of a search, or it is damaged")
    try:
        content = zlib.decompressobj().decompress(base64.urlsafe_b64decode(packed), _LARGEST)
        data: dict[str, Any] = json.loads(content)
    except (TypeError, zlib.error) as error:
        raise ValueError(f"it is damaged: {error!r}") from error
    return data


def _trial(space: Space, data: Mapping[str, Any]) -> SearchTrial:
    worth = data["worth"]
    return SearchTrial(
        int(data["number"]), space.point(data["point"]), None if worth is None else float(worth)
    )


def _seed(*numbers: int) -> int:
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
