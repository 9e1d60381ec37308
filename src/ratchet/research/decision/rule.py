"""The rule of keeping, without the measuring: strict or beyond noise, in rounds, then on held-out inputs."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from statistics import NormalDist

from ratchet.judges.comparison import PAIRED, Look, at_most, average, look, look_shares, shrunk
from ratchet.kernel import Direction, Misuse, TrialStatus, exp_id
from ratchet.research.adapter import KeepRule
from ratchet.research.decision.outcome import Champion, Decided, HeldOut, Noise, Phase, Side


def held_out_exactly(case: DecisionCase) -> Generator[Ask, Scores, HeldOut]:
    against = case.champion.held_out
    while against is None:
        scores = yield Ask((Side.CHAMPION,), Phase.HELD_OUT, case.rule.seed)
        against = scores.get(Side.CHAMPION)
    scores = yield Ask((Side.CHALLENGER,), Phase.HELD_OUT, case.rule.seed)
    score = scores[Side.CHALLENGER]
    gain = case.gain(score, against)
    return HeldOut(gain >= -case.rule.held_out_tolerance, score, against, gain, 1)


def held_out_confidently(case: DecisionCase) -> Generator[Ask, Scores, HeldOut]:
    """Side by side again, where no search looked. Out goes only what is worse there beyond noise."""
    rule, noise_sd = case.rule, case.noise.held_out_sd
    rounds = Rounds(case)
    shares = look_shares(rule.least, rule.most)
    seeds = case.seeds()
    while True:
        yield from rounds.another(Phase.HELD_OUT, seeds)
        fine = rounds.gain >= -rule.held_out_tolerance
        if rounds.n not in shares:
            if fine and noise_sd == 0.0:
                return _held_out(rounds, None, passed=True)
            continue
        losses = [-gain for gain in rounds.gains]
        tested = look(
            losses, above=rule.held_out_tolerance, noise_sd=noise_sd, alpha=rule.alpha, share=shares[rounds.n]
        )
        worse = tested.p_value <= rule.alpha
        if worse or fine or rounds.n == rule.most:
            return _held_out(rounds, tested.p_value, passed=not worse)


def _held_out(rounds: Rounds, p_value: float | None, *, passed: bool) -> HeldOut:
    return HeldOut(passed, rounds.score, rounds.against, rounds.gain, rounds.n, p_value)


def with_held_out(ruled: Decided, held_out: HeldOut, rule: KeepRule) -> Decided:
    rounds = f" in {held_out.rounds} rounds" if held_out.rounds > 1 else ""
    figures = f"{held_out.score:g} against {held_out.against:g}{rounds}"
    if held_out.passed:
        reason = f"{ruled.reason}; held out: {figures}"
        return replace(ruled, reason=reason, held_out=held_out)
    tolerated = f" by more than {rule.held_out_tolerance:g}" if rule.held_out_tolerance else ""
    reason = f"{ruled.reason}, but worse on the held-out split{tolerated}: {figures}"
    return replace(ruled, status=TrialStatus.DISCARD, reason=reason, held_out=held_out)


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


_FIRST_TRIALS = 100
_MOST_ROUNDS = 1000


def run_level(alpha: float, trial: int, *, keeps: int, planned: int | None) -> float:
    """The chance of a false keep that one trial of a run may take, by its number and the keeps before it.

    Half of `alpha` is for the trials that were `planned`, to equal parts, a quarter for twice as many after them, and
    so on; each keep adds as much again. Whatever the trials are and however they depend on each other, the expected
    number of false keeps is then at most `alpha` times one more than the expected number of keeps.
    """
    block = planned or _FIRST_TRIALS
    left, part = trial, 0.5
    while left > block:
        left, block, part = left - block, 2 * block, part / 2
    return min(alpha, alpha * part / block * (1 + keeps))


# How many times `most` rounds are made of a trial that one decision alone would keep.
_CONFIRMED = 4
# What is given up although it is as good as `find_effect`: so often at first sight, and at each look.
_LOST = 0.005
# Rounds are planned for a test at this chance with this much power, twice over.
_PLANNED_CHANCE, _PLANNED_POWER = 2.5e-4, 0.95
# How sure it is that the noise is no larger than it is reckoned to be: it is known from few measurements.
_SURE_OF_NOISE = 0.95


@dataclass(frozen=True, slots=True)
class DecisionCase:
    """What is to be decided. `trial` is the challenger's number, which gives it seeds of its own.

    `level` is the chance of a false keep that the run leaves to this decision; without it, it stands alone.
    """

    commit: str
    champion: Champion
    rule: KeepRule
    direction: Direction
    noise: Noise
    trial: int
    level: float | None = None

    @property
    def risk(self) -> float:
        return self.rule.alpha if self.level is None else self.level

    @property
    def noise_at_most(self) -> float | None:
        """What the spread of single scores is surely not above, by the repeats of the baseline."""
        if self.noise.sd is None:
            return None
        # Wilson and Hilferty: the cube root of a chi-square is nearly normal.
        spare = 2 / (9 * (self.rule.baseline_repeats - 1))
        least = max(0.1, 1 - spare - NormalDist().inv_cdf(_SURE_OF_NOISE) * math.sqrt(spare))
        return self.noise.sd / math.sqrt(least**3)

    @property
    def most_rounds(self) -> int:
        rule, noise = self.rule, self.noise_at_most
        if self.level is None and not rule.find_effect:
            return rule.most
        if not rule.find_effect or not noise:
            return min(_CONFIRMED * rule.most, _MOST_ROUNDS)
        reach = -NormalDist().inv_cdf(_PLANNED_CHANCE) + NormalDist().inv_cdf(_PLANNED_POWER)
        planned = 4 * (reach * noise / (rule.find_effect - rule.min_effect)) ** 2
        return max(rule.most, min(math.ceil(planned), _MOST_ROUNDS))

    @property
    def first_bar(self) -> float:
        """What a first score must be better by to be promising."""
        rule, noise = self.rule, self.noise_at_most
        if not rule.find_effect or noise is None:
            return rule.min_effect
        among = 1 if self.noise.repeatable else len(self.champion.samples)
        unlucky = -NormalDist().inv_cdf(_LOST) * noise * math.sqrt(1 + 1 / among)
        return min(rule.min_effect, rule.find_effect - unlucky)

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
        rule = self.rule
        most = (
            _MOST_ROUNDS if rule.find_effect else rule.most if self.level is None else _CONFIRMED * rule.most
        )
        return count(rule.seed + 1 + self.trial * (most + VOID_ROUNDS))


class Rounds:
    """The rounds so far in which both sides were measured."""

    def __init__(self, case: DecisionCase) -> None:
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


@dataclass(frozen=True, slots=True)
class Strict:
    """`delta` is the score less the best, whichever way is better; there is none where there is no number."""

    status: TrialStatus
    delta: float | None

    @property
    def kept(self) -> bool:
        return self.status is TrialStatus.KEEP

    @property
    def delta_text(self) -> str:
        return delta_text(self.delta)


def strict(score: float | None, best: float, direction: Direction) -> Strict:
    """Keep what is strictly better than `best`. A tie is discarded, and so is a score that is not a finite number."""
    if score is None or not math.isfinite(score):
        return Strict(TrialStatus.DISCARD, None)
    better = direction.gain(score, best) > 0
    return Strict(TrialStatus.KEEP if better else TrialStatus.DISCARD, score - best)


def delta_text(delta: float | None) -> str:
    """A difference as tables have it: signed, six decimals; empty where nothing was compared."""
    return "" if delta is None else f"{delta:+.6f}"


CONFIDENT, STRICT = "confident", "strict"


def check_rule(rule: KeepRule) -> None:
    """Raises `Misuse` for a rule that decides nothing, or not what its author thinks."""
    if rule.policy not in (CONFIDENT, STRICT):
        raise Misuse(f"there is no keep policy {rule.policy!r}", hint=f"take {CONFIDENT} or {STRICT}")
    for name in ("min_effect", "find_effect", "held_out_tolerance"):
        value = getattr(rule, name)
        if not (math.isfinite(value) and value >= 0):
            raise Misuse(f"keep.{name} must be 0 or more, not {value!r}")
    if 0 < rule.find_effect <= rule.min_effect:
        raise Misuse(
            f"keep.find_effect is {rule.find_effect:g}; gains up to keep.min_effect ({rule.min_effect:g}) are not kept",
            hint="set keep.find_effect above keep.min_effect, or leave one of them out",
        )
    if not 0 < rule.alpha < 0.5:
        raise Misuse(f"keep.alpha must lie between 0 and 0.5, not {rule.alpha!r}")
    if rule.seed < 0:
        raise Misuse(f"keep.seed must be 0 or more, not {rule.seed}")
    if rule.policy == STRICT or rule.deterministic:
        return
    if not 2 <= rule.least <= rule.most <= _MOST_ROUNDS:
        raise Misuse(
            f"a noisy score is measured in 2 to {_MOST_ROUNDS} rounds, not {rule.least} to {rule.most}",
            hint="set keep.least and keep.most, or keep.deterministic = true if one measurement is enough",
        )
    if rule.baseline_repeats < 2:
        raise Misuse(
            f"keep.baseline_repeats is {rule.baseline_repeats}; noise shows only in 2 or more measurements",
            hint="set keep.baseline_repeats to 2 or more, or keep.deterministic = true",
        )


# A mean of one round may lie on the wrong side by chance; of two it does so seldom enough to give up.
_HOPE_ROUNDS = 2

Deciding = Generator[Ask, Scores, Decided]


def deciding(case: DecisionCase) -> Deciding:
    """Ask for what is needed and rule. Raises `Misuse` for a rule that cannot be meant."""
    check_rule(case.rule)
    if case.rule.policy == STRICT:
        return (yield from _strictly(case))
    if case.rule.deterministic:
        return (yield from _exactly(case))
    return (yield from _confidently(case))


def _strictly(case: DecisionCase) -> Deciding:
    score = yield from _first(case.rule.seed)
    best = case.champion.score
    ruled = strict(score, best, case.direction)
    how = "is better than" if ruled.kept else "is not better than"
    reason = f"{score:g} {how} the {best:g} of {case.best} ({delta_text(score - best)})"
    return _once(case, ruled.status, score, best, case.rule.seed, "strict", reason)


def _exactly(case: DecisionCase) -> Deciding:
    """A task without noise: the difference is what it is."""
    rule, best = case.rule, case.champion.score
    score = yield from _first(rule.seed)
    gain = case.gain(score, best)
    kept = gain > rule.min_effect
    how = "is better than" if kept else "is not better than"
    reason = f"{score:g} {how} the {best:g} of {case.best}{case.wanted} (gain {gain:+g})"
    if kept:
        # A recipe may draw lots although the task says that there are none, and would win by chance in time.
        again = yield from _first(rule.seed, Phase.AGAIN)
        kept = again == score
        if not kept:
            reason = f"it gave {score:g} and then {again:g}, in a task that is to give the same each time"
    status = TrialStatus.KEEP if kept else TrialStatus.DISCARD
    ruled = _once(case, status, score, best, rule.seed, "exact", reason)
    if kept and rule.held_out:
        return with_held_out(ruled, (yield from held_out_exactly(case)), rule)
    return ruled


def _confidently(case: DecisionCase) -> Deciding:
    """A noisy task: one look at the challenger, and side by side with the champion if it is promising."""
    rule = case.rule
    seed, hurdle = _hurdle(case)
    first = yield from _first(seed)
    if case.gain(first, hurdle) <= case.first_bar:
        reason = f"{first:g} at first sight is not better than the {hurdle:g} of {case.best}{case.wanted}"
        return _once(case, TrialStatus.DISCARD, first, hurdle, seed, "first sight", reason)
    # What made it promising is not used again: it was picked for being good.
    rounds = Rounds(case)
    shares = look_shares(rule.least, case.most_rounds)
    seeds = case.seeds()
    looks: list[Look] = []
    while True:
        yield from rounds.another(Phase.ROUND, seeds)
        share = shares.get(rounds.n)
        if share is not None:
            looks.append(_better(case, rounds, share))
            if looks[-1].p_value <= case.risk:
                break
        if rounds.n == case.most_rounds or _hopeless(case, rounds, looks, share):
            return _ruled(case, TrialStatus.DISCARD, rounds, looks, f"{first:g} at first sight, but ")
    ruled = _ruled(case, TrialStatus.KEEP, rounds, looks, "", share=share)
    if rule.held_out:
        return with_held_out(ruled, (yield from held_out_confidently(case)), rule)
    return ruled


def _hopeless(case: DecisionCase, rounds: Rounds, looks: list[Look], share: float | None) -> bool:
    """Whether more rounds are a waste. Giving up never keeps what is no better, so that it needs no proof."""
    rule = case.rule
    if rule.find_effect and case.noise.sd is not None:
        if share is None:
            return False
        return at_most(rounds.gains, noise_sd=case.noise.sd, chance=_LOST) < rule.find_effect
    if rounds.n >= _HOPE_ROUNDS and rounds.gain <= rule.min_effect:
        return True
    # Beyond the usual rounds only for what one decision alone would keep.
    return share is not None and rounds.n >= rule.most and looks[-1].p_value * share > rule.alpha


def _first(seed: int, phase: Phase = Phase.FIRST) -> Generator[Ask, Scores, float]:
    scores = yield Ask((Side.CHALLENGER,), phase, seed)
    return scores[Side.CHALLENGER]


def _hurdle(case: DecisionCase) -> tuple[int, float]:
    """With which seed to look first, and what to beat there.

    Where a seed says it all, like is held against like: a hard seed would else hide every gain, an easy one feign one.
    Trials take turns at the champion's seeds, so that none of them rules for long.
    """
    champion = case.champion
    if not champion.seeds:
        return case.rule.seed, champion.score
    at = case.trial % len(champion.seeds)
    return champion.seeds[at], champion.samples[at] if case.noise.repeatable else champion.score


def _better(case: DecisionCase, rounds: Rounds, share: float) -> Look:
    rule = case.rule
    return look(rounds.gains, above=rule.min_effect, noise_sd=case.noise.sd, alpha=case.risk, share=share)


def _once(
    case: DecisionCase, status: TrialStatus, score: float, against: float, seed: int, test: str, reason: str
) -> Decided:
    """A ruling on a single score."""
    return Decided(
        commit=case.commit,
        status=status,
        score=score,
        against=against,
        delta=score - against,
        compared_to=case.champion.number,
        reason=reason,
        test=test,
        samples=(score,),
        seeds=(seed,),
        estimate=case.gain(score, against),
        gained=case.champion.gained,
    )


def _ruled(
    case: DecisionCase,
    status: TrialStatus,
    rounds: Rounds,
    looks: list[Look],
    before: str,
    *,
    share: float | None = None,
) -> Decided:
    """A ruling on rounds side by side."""
    how = "better" if status is TrialStatus.KEEP else "not clearly better"
    if rounds.gain <= case.rule.min_effect:
        how = "not better"
    reason = (
        f"{before}{rounds.score:g} is {how} than the {rounds.against:g} of {case.best}{case.wanted}"
        f" in {rounds.n} rounds side by side: gain {rounds.gain:+g}"
    )
    if looks:
        last = looks[-1]
        reason += f" ({last.low:+g} to {last.high:+g}), p = {last.p_value:.3g}"
    return Decided(
        commit=case.commit,
        status=status,
        score=rounds.score,
        against=rounds.against,
        delta=rounds.score - rounds.against,
        compared_to=case.champion.number,
        reason=reason,
        test=PAIRED,
        samples=tuple(rounds.challenger),
        seeds=tuple(rounds.seeds),
        looks=tuple(looks),
        level=case.level,
        estimate=rounds.gain
        if share is None
        else shrunk(looks[-1], above=case.rule.min_effect, alpha=case.risk, share=share),
        gained=case.champion.gained,
    )
