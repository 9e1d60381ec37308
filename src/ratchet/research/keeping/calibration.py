"""Measuring the baseline: where a run starts, and how noisy its scores are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.judges.comparison import average, spread
from ratchet.kernel import Misuse
from ratchet.research.adapter import KeepRule
from ratchet.research.keeping.means import means
from ratchet.research.keeping.noise import Noise
from ratchet.research.keeping.rule import STRICT, check_rule
from ratchet.research.measurement import Measurement, Meter


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the baseline came to. `samples` were measured with `seeds`, and `held_out` with the same.

    `again` and `held_out_again` are second measurements with the first seed. They only tell whether a seed says it all,
    and are no samples. `means` are those of the evaluator's other measurements.
    """

    samples: tuple[float, ...]
    seeds: tuple[int, ...] = ()
    again: float | None = None
    held_out: tuple[float, ...] = ()
    held_out_again: float | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    told: str = ""

    def __post_init__(self) -> None:
        if not self.samples:
            raise Misuse("a baseline needs at least one score")

    @property
    def mean(self) -> float:
        return average(self.samples)

    @property
    def sd(self) -> float | None:
        """The spread of the samples; of a single one it is not known."""
        return _sd(self.samples)

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def noise(self) -> Noise:
        return Noise(self.sd, self.again == self.samples[0], _sd(self.held_out))

    def record(self) -> dict[str, Any]:
        """As JSON has it. `Champion.of` reads the best that a run starts with from it."""
        return {
            "score": self.mean,
            "sd": self.sd,
            "n": self.n,
            "samples": list(self.samples),
            "seeds": list(self.seeds),
            "again": self.again,
            "held_out": average(self.held_out) if self.held_out else None,
            "held_out_samples": list(self.held_out),
            "held_out_again": self.held_out_again,
            "means": dict(self.means),
            "told": self.told,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Baseline:
        """The baseline whose `record` this is."""
        return cls(
            samples=tuple(record["samples"]),
            seeds=tuple(record["seeds"]),
            again=record["again"],
            held_out=tuple(record["held_out_samples"]),
            held_out_again=record["held_out_again"],
            means=dict(record["means"]),
            told=record["told"],
        )


async def calibrate(meter: Meter, commit: str, rule: KeepRule) -> Baseline:
    """Measure the baseline as often as the rule wants, and its first seed once more.

    Raises `Unmeasured` as soon as one measurement fails, and `Misuse` for a task that says it is deterministic and is
    not: everything that came after would be decided by luck.
    """
    check_rule(rule)
    once = rule.deterministic or rule.policy == STRICT
    seeds = range(rule.seed, rule.seed + (1 if once else rule.baseline_repeats))
    # The strict rule asks for no proof; it takes the first score of a noisy task for what it is.
    twice = rule.deterministic or rule.policy != STRICT
    taken, again = await _measured(meter, commit, seeds, rule, held_out=False, twice=twice)
    held_out: list[Measurement] = []
    held_out_again = None
    if rule.held_out and rule.policy != STRICT:
        held_out, held_out_again = await _measured(meter, commit, seeds, rule, held_out=True, twice=twice)
    samples = tuple(each.score for each in taken)
    return Baseline(
        samples=samples,
        seeds=tuple(seeds),
        again=again,
        held_out=tuple(each.score for each in held_out),
        held_out_again=held_out_again,
        means=means([each.measurements for each in taken]),
        told=_told(samples),
    )


async def _measured(
    meter: Meter, commit: str, seeds: range, rule: KeepRule, *, held_out: bool, twice: bool
) -> tuple[list[Measurement], float | None]:
    taken = [await meter.measure(commit, seed=seed, held_out=held_out) for seed in seeds]
    if not twice:
        return taken, None
    first = taken[0].score
    again = (await meter.measure(commit, seed=rule.seed, held_out=held_out)).score
    if rule.deterministic and again != first:
        where = " on the held-out split" if held_out else ""
        raise Misuse(
            f"the task says that it is deterministic, but seed {rule.seed} gave {first!r} and then {again!r}{where}",
            hint="set keep.deterministic = false, or let recipe and evaluator draw all chance from the seed",
        )
    return taken, again


def _sd(samples: Sequence[float]) -> float | None:
    return spread(tuple(samples))[1] if len(samples) > 1 else None


def _told(samples: tuple[float, ...]) -> str:
    mean, sd = spread(samples)
    return f"{mean:g}" if len(samples) == 1 else f"{mean:g} ± {sd:g} from {len(samples)}"
