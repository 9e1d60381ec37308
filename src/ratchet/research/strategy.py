"""From which program a session begins, and which others it is shown: strategies over the tree of a run's trials.

A strategy chooses, and decides nothing else: the best still moves only by the judge. What it knows is the population,
which follows from the rows of trials, so that it is the same after a crash. The cost of a choice does not grow with
the number of trials.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from random import Random
from typing import Any

from ratchet.kernel import Direction, Misuse, RatchetError, TrialStatus
from ratchet.ledger.trials import TrialOrigin

ISLANDS = 4
# Programs of an island that may become parents; the worst goes when there is a better one.
_MEMBERS = 100
# Worths that a new one is ranked among, the newest of them.
_RANKED = 500
# How far up the tree it is told how a trial did: above, the evidence of thousands of trials says nothing new.
_ABOVE = 200
INSTANCE = "instance_"
"""What the names of measurements begin with that are scores of single instances, as good as the task's own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The trial that a session begins from, none for the best of now, and those that it is shown beside it.

    What is made of it belongs to `island`. One that is `alone` is told nothing of what was tried before.
    """

    parent: int | None = None
    inspirations: tuple[int, ...] = ()
    island: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A program that was measured. The higher `worth` the better, also where the task wants a low score."""

    worth: float
    number: int
    parent: int | None = field(compare=False)
    island: int = field(compare=False)
    cell: tuple[int, ...] = field(compare=False)
    instances: Mapping[str, float] = field(compare=False, default_factory=dict)


class Population:
    """The programs of a run that may be chosen, and how those did that came from them."""

    def __init__(self, direction: Direction, *, members: int = _MEMBERS) -> None:
        self._direction = direction
        self._most = members
        self._islands: dict[int, list[Member]] = defaultdict(list)
        self._island_of: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._evidence: dict[int, tuple[float, float]] = {}
        self._newest: list[float] = []
        self._ranked: list[float] = []
        self.best: Member | None = None
        self.latest: Member | None = None
        self.since_keep = 0
        """How many trials gave a result since one was kept."""

    def add(self, trial: TrialOrigin) -> None:
        """Take in a trial that has ended; each one once, in whatever order they end."""
        if trial.status is None or not trial.status.tried:
            return
        origin = trial.origin if isinstance(trial.origin, Mapping) else {}
        above = self._island_of.get(trial.parent, 0) if trial.parent is not None else 0
        island = origin.get("island")
        self._island_of[trial.number] = island = island if isinstance(island, int) else above
        if trial.parent is not None:
            self._parents[trial.number] = trial.parent
        valid = trial.status.valid and trial.score is not None
        worth = self._direction.gain(trial.score, 0.0) if valid and trial.score is not None else None
        self._tell(trial.number, 0.0 if worth is None else self._rank(worth))
        kept = trial.status in (TrialStatus.BASELINE, TrialStatus.KEEP)
        self.since_keep = 0 if kept else self.since_keep + 1
        if worth is None:
            return
        member = Member(worth, trial.number, trial.parent, island, _cell(origin), self._instances(trial))
        insort(self._islands[island], member)
        if len(self._islands[island]) > self._most:
            self._islands[island].pop(0)
        if kept:
            self.best = member
        if self.latest is None or member.number > self.latest.number:
            self.latest = member

    def island(self, number: int) -> list[Member]:
        """Its members, the worst first. The baseline is at home on each."""
        return self._islands.get(number, [])

    def members(self) -> Iterator[Member]:
        for island in self._islands.values():
            yield from island

    def top(self, count: int) -> list[Member]:
        """The best members of all, the best first."""
        tops = (member for island in self._islands.values() for member in island[-count:])
        return sorted(tops, reverse=True)[:count]

    def evidence(self, number: int) -> tuple[float, float]:
        """How much speaks for a program and against it, in what it and its descendants came to."""
        return self._evidence.get(number, (0.0, 0.0))

    def _rank(self, worth: float) -> float:
        """The share of the latest programs that this one is better than."""
        share = (bisect_left(self._ranked, worth) + 0.5) / (len(self._ranked) + 1)
        self._newest.append(worth)
        insort(self._ranked, worth)
        if len(self._newest) > _RANKED:
            del self._ranked[bisect_left(self._ranked, self._newest.pop(0))]
        return share

    def _tell(self, number: int, share: float) -> None:
        at: int | None = number
        for _ in range(_ABOVE):
            if at is None:
                return
            good, bad = self._evidence.get(at, (0.0, 0.0))
            self._evidence[at] = (good + share, bad + 1 - share)
            at = self._parents.get(at)

    def _instances(self, trial: TrialOrigin) -> dict[str, float]:
        means = trial.measurements.get("means") if isinstance(trial.measurements, Mapping) else None
        if not isinstance(means, Mapping):
            return {}
        return {
            name: self._direction.gain(value, 0.0)
            for name, value in means.items()
            if str(name).startswith(INSTANCE) and isinstance(value, int | float)
        }


def _cell(origin: Mapping[str, Any]) -> tuple[int, ...]:
    """What kind of program it is: of two of a kind the better one counts. By its size and its branches, in steps."""
    shape = origin.get("shape")
    if not isinstance(shape, list) or not all(isinstance(each, int) and each >= 0 for each in shape):
        return ()
    return tuple(each.bit_length() * 2 + (each >> max(0, each.bit_length() - 2) & 1) for each in shape)


Strategy = Callable[[Population, Random], Choice]
"""Chooses for the next session. Same population and same chance, same choice."""

GREEDY = "greedy"


def greedy(_population: Population, _chance: Random) -> Choice:
    """The best, and nothing beside it."""
    return Choice()


def best_of_n(_population: Population, _chance: Random) -> Choice:
    """The baseline again and again, with no word of what was tried: what comes of asking often."""
    return Choice(parent=0, alone=True)


def sequential(population: Population, _chance: Random) -> Choice:
    """What was measured last, however it did, with the history: what comes of one long conversation."""
    return Choice(parent=population.latest.number if population.latest is not None else 0)


def islands(population: Population, chance: Random) -> Choice:
    """Populations side by side, of which each keeps the best of every kind of program (quality and diversity).

    They meet in inspirations, and one that is far behind begins again from the best of all.
    """
    here = chance.randrange(ISLANDS)
    mine = population.island(here)
    best = population.best
    if best is not None and mine and chance.random() < _RESETTLED and mine[-1] < best:
        mine = []
    elites = list({member.cell: member for member in mine}.values())
    # Half of the sessions begin from the island's best, the others from the best of some kind or from any, good ones
    # more often.
    parent = best
    if mine:
        other = chance.choice((chance.choice(elites), mine[-1 - int(len(mine) * chance.random() ** 2)]))
        parent = mine[-1] if chance.random() < _EXPLOITED else other
    others = [found[-1] for each in range(ISLANDS) if each != here and (found := population.island(each))]
    kinds = [member for member in elites if member != parent]
    shown = [chance.choice(pool) for pool in (others, kinds) if pool]
    return Choice(
        parent=None if parent is None else parent.number,
        inspirations=_numbers(shown, parent),
        island=here,
    )


_EXPLOITED = 0.5
_RESETTLED = 0.05


def clade(population: Population, chance: Random) -> Choice:
    """Thompson sampling over descendants: a program is worth what came of it, not only what it scored."""
    top = population.top(_CLADES)
    if not top:
        return Choice()
    drawn = {member: _drawn(population.evidence(member.number), chance) for member in top}
    parent = max(top, key=lambda member: drawn[member])
    return Choice(
        parent=parent.number,
        inspirations=_numbers(sorted(top, key=lambda member: -drawn[member])[1:3], parent),
    )


_CLADES = 16


def _drawn(evidence: tuple[float, float], chance: Random) -> float:
    good, bad = evidence
    return chance.betavariate(1 + good, 1 + bad)


def pareto(population: Population, chance: Random) -> Choice:
    """The programs that are best at some instance, the more the likelier, with others that are best elsewhere."""
    best: dict[str, list[Member]] = defaultdict(list)
    for member in population.members():
        for name, worth in member.instances.items():
            leaders = best[name]
            if not leaders or worth > leaders[0].instances[name]:
                best[name] = [member]
            elif worth == leaders[0].instances[name]:
                leaders.append(member)
    if not best:
        raise Misuse(
            "the strategy pareto needs the scores of single instances, and the evaluator measures none",
            hint=f"name measurements {INSTANCE}…, each as good as the score is, or use another strategy",
        )
    front = [max(leaders) for _, leaders in sorted(best.items())]
    parent = chance.choice(front)
    return Choice(
        parent=parent.number,
        inspirations=_numbers(chance.sample(front, len(front)), parent)[:2],
    )


def adaptive(population: Population, chance: Random) -> Choice:
    """The best while it gets better; on a plateau islands, then descendants, in turns until something is kept."""
    stages: tuple[Strategy, ...] = (greedy, islands, clade)
    return stages[population.since_keep // PLATEAU % len(stages)](population, chance)


PLATEAU = 25
"""Trials without a keep after which another strategy is tried."""

STRATEGIES: Mapping[str, Strategy] = {
    each.__name__: each for each in (greedy, islands, clade, pareto, adaptive, best_of_n, sequential)
}
WITHOUT_MEASUREMENTS = frozenset(STRATEGIES) - {"pareto"}
"""Those that look at scores only, so that nothing else of a long history is read."""
BASELINES = ("best_of_n", "sequential")
DEFAULT = adaptive.__name__
"""Of runs that name none. Those that were begun before there was a choice stay greedy."""
GROUP = "ratchet.strategies"


def _numbers(members: list[Member], parent: Member | None) -> tuple[int, ...]:
    """Without the parent, each once."""
    numbers = (member.number for member in members if member != parent)
    return tuple(dict.fromkeys(numbers))


def strategy_names() -> list[str]:
    """Ratchet's own and those of other packages."""
    return [*STRATEGIES, *sorted({point.name for point in entry_points(group=GROUP)} - set(STRATEGIES))]


def find_strategy(name: str) -> Strategy:
    """Raises `Misuse` for a name that there is not, and `RatchetError` for a strategy that cannot be loaded."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    for point in entry_points(group=GROUP, name=name):
        try:
            strategy: Strategy = point.load()
        except Exception as error:
            raise RatchetError(
                f"the strategy {name!r} of {point.value} cannot be loaded: {type(error).__name__}: {error}",
                hint="fix or uninstall the package that brings it",
            ) from error
        return strategy
    raise Misuse(f"there is no strategy {name!r}", hint=f"there are {', '.join(strategy_names())}")
