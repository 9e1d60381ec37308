"""The baseline and its noise, and the decision on a challenger, by measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ratchet.judges.comparison import average, spread
from ratchet.judges.reports import Feedback
from ratchet.kernel import Direction, Misuse, TrialStatus
from ratchet.research.adapter import KeepRule
from ratchet.research.decision.outcome import Champion, Decided, Noise, Phase, Side, TakenMeasurement, means
from ratchet.research.decision.rule import STRICT, VOID_ROUNDS, Ask, DecisionCase, check_rule, deciding
from ratchet.research.measurement.result import Measurement, Meter, Unmeasured


@dataclass(frozen=True, slots=True)
class MeasuredBaseline:
    """What was measured of the baseline. `samples` were measured with `seeds`, and `held_out` with the same.

    `again` and `held_out_again` are second measurements with the first seed. They only tell whether a seed says it all,
    and are no samples. `means` are those of the evaluator's other measurements.
    """

    samples: tuple[float, ...]
    seeds: tuple[int, ...] = ()
    again: float | None = None
    held_out: tuple[float, ...] = ()
    held_out_again: float | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    feedback: Feedback = field(default_factory=Feedback)

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
            "told": self.note,
            **self.feedback.record(),
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> MeasuredBaseline:
        """The baseline whose `record` this is."""
        return cls(
            samples=tuple(record["samples"]),
            seeds=tuple(record["seeds"]),
            again=record["again"],
            held_out=tuple(record["held_out_samples"]),
            held_out_again=record["held_out_again"],
            means=dict(record["means"]),
            note=record["told"],
        )


async def calibrate(meter: Meter, commit: str, rule: KeepRule) -> MeasuredBaseline:
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
    return MeasuredBaseline(
        samples=samples,
        seeds=tuple(seeds),
        again=again,
        held_out=tuple(each.score for each in held_out),
        held_out_again=held_out_again,
        means=means([each.measurements for each in taken]),
        note=_scores_text(samples),
        feedback=taken[-1].feedback,
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


def _scores_text(samples: tuple[float, ...]) -> str:
    mean, sd = spread(samples)
    return f"{mean:g}" if len(samples) == 1 else f"{mean:g} ± {sd:g} from {len(samples)}"


async def decide(
    meter: Meter,
    challenger: str,
    champion: Champion,
    rule: KeepRule,
    direction: Direction,
    noise: Noise,
    *,
    trial: int,
    level: float | None = None,
) -> Decided:
    """Measure the commit `challenger`, which is trial number `trial`, until it is clear whether it is kept.

    `level` is what its run leaves to it of the chance of a false keep, see `run_level`.

    Raises `Unmeasured` when the challenger fails in any of its measurements, with the status of that failure; and with
    `infra_error` when the machine failed, or the champion can no longer be measured. The same arguments ask for the
    same measurements, so a decision that was cut off can be made again.
    """
    steps = deciding(DecisionCase(challenger, champion, rule, direction, noise, trial, level))
    taken: list[TakenMeasurement] = []
    said: list[Feedback] = []
    ask = next(steps)
    while True:
        commits = {Side.CHALLENGER: challenger, Side.CHAMPION: champion.commit}
        scores = await _answer(meter, ask, commits, taken, said)
        _check_champion(champion, taken)
        try:
            ask = steps.send(scores)
        except StopIteration as ruled:
            decided: Decided = ruled.value
            return replace(decided, taken=tuple(taken), feedback=said[-1])


async def _answer(
    meter: Meter,
    ask: Ask,
    commits: Mapping[Side, str],
    taken: list[TakenMeasurement],
    said: list[Feedback],
) -> dict[Side, float]:
    scores: dict[Side, float] = {}
    for side in ask.sides:
        try:
            measured = await meter.measure(commits[side], seed=ask.seed, held_out=ask.phase is Phase.HELD_OUT)
        except Unmeasured as failed:
            if failed.status is TrialStatus.INFRA_ERROR:
                raise
            if side is Side.CHALLENGER:
                raise _in_a_repeat(failed, ask, taken) from failed
            taken.append(_void(ask, commits[side], failed))
            break
        taken.append(_taken(ask, side, measured))
        # What is held out stays so: an evaluator's words on it would be a way to fit to it.
        if side is Side.CHALLENGER and not measured.held_out:
            said.append(measured.feedback)
        scores[side] = measured.score
    return scores


def _taken(ask: Ask, side: Side, measured: Measurement) -> TakenMeasurement:
    return TakenMeasurement(
        side=side,
        phase=ask.phase,
        commit=measured.commit,
        seed=measured.seed,
        score=measured.score,
        measurements=measured.measurements,
        wall_ms=measured.wall_ms,
        facts=measured.facts,
    )


def _void(ask: Ask, commit: str, failed: Unmeasured) -> TakenMeasurement:
    return TakenMeasurement(
        side=Side.CHAMPION,
        phase=ask.phase,
        commit=commit,
        seed=ask.seed,
        score=None,
        problem=f"{failed.status}: {failed.reason}",
        facts=failed.facts,
    )


def _in_a_repeat(failed: Unmeasured, ask: Ask, taken: list[TakenMeasurement]) -> Unmeasured:
    """The failure with what was measured before it: a recipe that fails now and then is one that fails."""
    earlier = [each.score for each in taken if each.side is Side.CHALLENGER]
    if not earlier:
        return failed
    where = " on the held-out split" if ask.phase is Phase.HELD_OUT else ""
    return Unmeasured(
        failed.status,
        f"measured {len(earlier)} times, then failed with seed {ask.seed}{where}: {failed.reason}",
        facts={**failed.facts, "earlier_scores": earlier},
        score=failed.score,
        measurements=failed.measurements,
        feedback=Feedback() if ask.phase is Phase.HELD_OUT else failed.feedback,
    )


def _check_champion(champion: Champion, taken: list[TakenMeasurement]) -> None:
    """A champion that fails now and then costs rounds; one that keeps failing makes every comparison void, and that is
    nobody's idea that failed but the world that changed."""
    problems = [each.problem for each in taken if each.score is None]
    if len(problems) >= VOID_ROUNDS:
        raise Unmeasured(
            TrialStatus.INFRA_ERROR,
            f"the best, {champion.commit}, could not be measured again {len(problems)} times: {problems[-1]}",
        )
