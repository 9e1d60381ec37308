"""Deciding on a challenger: what is measured, in which order, and what comes of it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ratchet.kernel import Direction, Misuse, TrialStatus
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, Decided, Noise, Phase, Side, decide
from ratchet.research.measurement.result import Unmeasured
from tests.research.decision.scripted import Score, ScriptedMeter

RULE = KeepRule()
EXACT = KeepRule(deterministic=True)
CHAMPION = Champion(7, "best", 10.0, (9.0, 10.0, 11.0), (40, 41, 42))
NOISE = Noise(sd=1.0)


def decided(
    score: Score,
    rule: KeepRule = RULE,
    *,
    champion: Champion = CHAMPION,
    direction: Direction = Direction.MAX,
    noise: Noise = NOISE,
    trial: int = 9,
) -> tuple[Decided, ScriptedMeter]:
    meter = ScriptedMeter(score)
    return asyncio.run(decide(meter, "new", champion, rule, direction, noise, trial=trial)), meter


def drawn(**means: float) -> Score:
    """Scores around a mean for each commit, with noise of 1."""
    chance = random.Random(3)
    return lambda commit, _seed, _held_out: chance.gauss(means[commit], 1.0)


def test_what_does_not_look_better_is_discarded_after_one_measurement() -> None:
    ruled, meter = decided(lambda *_: 10.0)

    assert len(meter.asked) == 1
    assert (ruled.status, ruled.score, ruled.delta) == (TrialStatus.DISCARD, 10.0, 0.0)
    assert (ruled.compared_to, ruled.test, ruled.p_value) == (7, "first sight", None)
    assert "10 at first sight is not better than the 10 of 007" in ruled.reason


def test_a_clear_gain_is_kept_with_its_evidence() -> None:
    ruled, meter = decided(drawn(new=15.0, best=10.0))

    assert ruled.status is TrialStatus.KEEP
    assert ruled.score == pytest.approx(15.0, abs=1.5)
    assert ruled.delta == pytest.approx(ruled.score - ruled.against)
    [*_, last] = ruled.looks
    assert (ruled.p_value, ruled.low, ruled.high) == (last.p_value, last.low, last.high)
    assert last.p_value <= 0.05
    assert 0 < last.low < ruled.delta < last.high
    assert len(meter.asked) == len(ruled.taken) == 1 + 2 * len(ruled.samples)
    assert "better than" in ruled.reason
    assert ruled.means == {"twice": pytest.approx(2 * ruled.score)}


def test_both_sides_are_measured_with_the_same_seeds_in_turn() -> None:
    ruled, meter = decided(drawn(new=15.0, best=10.0))

    rounds = meter.asked[1:]
    pairs = list(zip(rounds[::2], rounds[1::2], strict=True))
    assert all(one[1] == other[1] and {one[0], other[0]} == {"new", "best"} for one, other in pairs)
    first = [one[0] for one, _ in pairs]
    assert first[:3] in (["new", "best", "new"], ["best", "new", "best"])
    assert ruled.seeds == tuple(one[1] for one, _ in pairs)


def test_the_measurement_that_made_it_promising_is_no_part_of_its_score() -> None:
    scores = iter([1000.0])
    steady = drawn(new=15.0, best=10.0)
    ruled, _ = decided(lambda *asked: next(scores, None) or steady(*asked))
    assert ruled.score < 20.0
    assert (ruled.taken[0].phase, ruled.taken[0].score) == (Phase.FIRST, 1000.0)


def test_each_trial_has_seeds_of_its_own_and_the_same_trial_has_the_same_again() -> None:
    def seeds(trial: int) -> set[int]:
        return {seed for _, seed, _ in decided(drawn(new=10.5, best=10.0), trial=trial)[1].asked[1:]}

    assert len(seeds(1)) > 1
    assert seeds(1) == seeds(1)
    assert not seeds(1) & seeds(2)


def test_what_only_looked_better_at_first_is_given_up_as_soon_as_the_mean_of_two_rounds_is_not() -> None:
    scores = iter([12.0])
    ruled, meter = decided(lambda *_: next(scores, 9.0))
    assert (ruled.status, len(meter.asked)) == (TrialStatus.DISCARD, 5)
    assert "12 at first sight, but 9 is not better than the 9 of 007 in 2 rounds" in ruled.reason


def test_a_gain_that_never_becomes_clear_is_discarded_after_the_most_rounds() -> None:
    def score(commit: str, seed: int, _held_out: bool) -> float:
        return 10.0 + (0.2 + 3.0 * (seed % 2) - 1.5 if commit == "new" else 0.0)

    ruled, meter = decided(score, replace(RULE, least=2, most=6), trial=4)

    assert ruled.status is TrialStatus.DISCARD
    assert len(meter.asked) == 1 + 2 * 6
    assert "not clearly better" in ruled.reason
    assert [each.rounds for each in ruled.looks] == [2, 3, 4, 6]


def test_less_is_better_when_told_so() -> None:
    score = drawn(new=5.0, best=10.0)
    assert decided(score, direction=Direction.MIN)[0].kept
    assert len(decided(score, direction=Direction.MAX)[1].asked) == 1


def test_a_gain_must_exceed_the_smallest_that_counts() -> None:
    rule = replace(RULE, min_effect=4.0)
    assert not decided(drawn(new=13.0, best=10.0), rule)[0].kept
    assert decided(drawn(new=20.0, best=10.0), rule)[0].kept


def test_three_equal_rounds_of_a_noisy_task_are_not_enough() -> None:
    small = lambda commit, *_: 10.5 if commit == "new" else 10.0  # noqa: E731
    ruled, _ = decided(small)
    assert [each.rounds for each in ruled.looks][:2] == [3, 4]
    unheard, _ = decided(small, noise=Noise(sd=0.0, repeatable=True), champion=replace(CHAMPION, seeds=()))
    assert [each.rounds for each in unheard.looks] == [3]


def test_where_a_seed_says_it_all_first_sight_compares_with_the_same_seed() -> None:
    """A gain of 0.5 that a hard seed would hide."""
    shift = lambda commit, seed, _h: seed - 31.0 + (0.5 if commit == "new" else 0.0)  # noqa: E731
    seeded = Noise(sd=1.0, repeatable=True)
    for trial in (9, 10, 11):
        assert decided(shift, noise=seeded, trial=trial)[0].kept
    assert decided(shift, noise=Noise(sd=1.0), trial=9)[0].test == "first sight"


class TestDeterministic:
    def test_one_measurement_decides_against_the_stored_score(self) -> None:
        ruled, meter = decided(lambda *_: 9.999999, EXACT)
        assert (ruled.status, meter.asked) == (TrialStatus.DISCARD, [("new", 0, False)])
        assert (ruled.test, ruled.samples, ruled.looks) == ("exact", (9.999999,), ())

    def test_a_new_best_must_give_the_same_score_again(self) -> None:
        ruled, meter = decided(lambda *_: 10.000001, EXACT)
        assert (ruled.status, meter.asked) == (TrialStatus.KEEP, [("new", 0, False)] * 2)
        scores = iter((12.0, 11.0))
        ruled, _ = decided(lambda *_: next(scores), EXACT)
        assert ruled.status is TrialStatus.DISCARD
        assert "it gave 12 and then 11" in ruled.reason

    @pytest.mark.parametrize(("score", "kept"), [(10.5, False), (10.6, True), (9.0, False)])
    def test_the_gain_must_exceed_the_smallest_that_counts(self, score: float, kept: bool) -> None:
        ruled, _ = decided(lambda *_: score, replace(EXACT, min_effect=0.5))
        assert ruled.kept is kept
        assert "by more than 0.5" in ruled.reason

    def test_a_new_best_is_measured_on_the_held_out_split_against_what_is_stored(self) -> None:
        rule = replace(EXACT, held_out=True)
        champion = replace(CHAMPION, held_out=5.0)
        score = lambda _c, _s, held_out: 4.9 if held_out else 11.0  # noqa: E731

        ruled, meter = decided(score, rule, champion=champion)
        assert meter.asked == [("new", 0, False), ("new", 0, False), ("new", 0, True)]
        assert ruled.status is TrialStatus.DISCARD
        assert "worse on the held-out split: 4.9 against 5" in ruled.reason

        tolerant = replace(rule, held_out_tolerance=0.2)
        ruled, _ = decided(score, tolerant, champion=champion)
        assert ruled.kept
        assert "held out: 4.9 against 5" in ruled.reason

    def test_a_champion_that_was_never_held_out_is_measured_there_too(self) -> None:
        score = lambda _c, _s, held_out: 5.0 if held_out else 11.0  # noqa: E731
        ruled, meter = decided(score, replace(EXACT, held_out=True))
        assert meter.asked == [("new", 0, False), ("new", 0, False), ("best", 0, True), ("new", 0, True)]
        assert ruled.kept

    def test_what_is_discarded_is_not_held_out(self) -> None:
        _, meter = decided(lambda *_: 9.0, replace(EXACT, held_out=True))
        assert len(meter.asked) == 1


def test_the_strict_policy_keeps_any_gain_and_asks_nothing_else() -> None:
    rule = KeepRule(policy="strict", min_effect=5.0, held_out=True)
    ruled, meter = decided(lambda *_: 10.0000001, rule)
    assert (ruled.status, ruled.test, len(meter.asked)) == (TrialStatus.KEEP, "strict", 1)
    assert "(+0.000000)" in ruled.reason
    assert not decided(lambda *_: 10.0, rule)[0].kept


def test_a_policy_that_does_not_exist_is_misuse() -> None:
    with pytest.raises(Misuse, match="lucky"):
        decided(lambda *_: 1.0, KeepRule(policy="lucky"))


class TestHeldOut:
    RULE = replace(RULE, held_out=True)
    NOISE = Noise(sd=1.0, held_out_sd=1.0)

    def held_out(self, gain: float, *, rule: KeepRule | None = None) -> tuple[Decided, ScriptedMeter]:
        chance = random.Random(5)

        def score(commit: str, _seed: int, held_out: bool) -> float:
            better = gain if held_out else 6.0
            return chance.gauss(10.0 + (better if commit == "new" else 0.0), 1.0)

        return decided(score, rule or self.RULE, noise=self.NOISE)

    def test_what_is_clearly_worse_there_is_discarded_and_told_so(self) -> None:
        ruled, _ = self.held_out(-6.0)
        assert ruled.status is TrialStatus.DISCARD
        assert "but worse on the held-out split" in ruled.reason
        assert ruled.held_out is not None
        assert not ruled.held_out.passed
        assert (ruled.held_out.p_value or 1.0) <= 0.05

    def test_what_is_good_there_too_is_kept_after_the_least_rounds(self) -> None:
        ruled, meter = self.held_out(6.0)
        assert ruled.kept
        assert ruled.held_out is not None
        assert ruled.held_out.passed
        assert sum(held_out for *_, held_out in meter.asked) == 2 * 3

    def test_a_loss_within_the_noise_or_the_tolerance_is_no_loss(self) -> None:
        assert self.held_out(-0.2)[0].kept
        assert self.held_out(-6.0, rule=replace(self.RULE, held_out_tolerance=8.0))[0].kept

    def test_a_split_without_noise_needs_one_round_to_pass_and_more_to_condemn(self) -> None:
        chance = random.Random(5)

        def score(loss: float) -> Callable[[str, int, bool], float]:
            return lambda commit, _s, held_out: (
                3.0 - (loss if commit == "new" else 0.0)
                if held_out
                else chance.gauss(16.0 if commit == "new" else 10.0, 1.0)
            )

        exact = Noise(sd=1.0, held_out_sd=0.0)
        good, meter = decided(score(0.0), self.RULE, noise=exact)
        assert good.kept
        assert sum(held_out for *_, held_out in meter.asked) == 2
        assert not decided(score(0.001), self.RULE, noise=exact)[0].kept


class TestFailures:
    def test_a_challenger_that_fails_at_once_fails_as_it_did(self) -> None:
        failure = Unmeasured(TrialStatus.DISQUALIFIED, "overlap", score=3.0)
        with pytest.raises(Unmeasured) as failed:
            decided(lambda *_: failure)
        assert failed.value is failure

    def test_a_challenger_that_fails_in_a_repeat_fails_with_what_was_measured_before(self) -> None:
        calls = iter(range(100))

        def score(commit: str, _seed: int, _held_out: bool) -> float | Unmeasured:
            late = commit == "new" and next(calls) == 2
            return Unmeasured(TrialStatus.CRASH, "boom") if late else 11.0 + (commit == "new")

        with pytest.raises(Unmeasured, match=r"measured 2 times, then failed with seed \d+: boom") as failed:
            decided(score)
        assert failed.value.status is TrialStatus.CRASH
        assert failed.value.facts["earlier_scores"] == [12.0, 12.0]

    @pytest.mark.parametrize("commit", ["new", "best"])
    def test_a_fault_of_the_machine_is_raised_as_it_is(self, commit: str) -> None:
        fault = Unmeasured(TrialStatus.INFRA_ERROR, "no disk")
        steady = drawn(new=15.0, best=10.0)
        with pytest.raises(Unmeasured) as failed:
            decided(lambda which, *rest: fault if which == commit else steady(which, *rest))
        assert failed.value is fault

    def test_a_round_in_which_the_champion_fails_does_not_count_for_either(self) -> None:
        steady, failures = drawn(new=15.0, best=10.0), iter([True, True])

        def score(commit: str, seed: int, held_out: bool) -> float | Unmeasured:
            if commit == "best" and next(failures, False):
                return Unmeasured(TrialStatus.CRASH, "boom")
            return steady(commit, seed, held_out)

        ruled, _ = decided(score)

        void = [each for each in ruled.taken if each.score is None]
        assert ruled.kept
        assert [(each.side, each.problem) for each in void] == [(Side.CHAMPION, "crash: boom")] * 2
        assert not {each.seed for each in void} & set(ruled.seeds)

    @pytest.mark.parametrize("rule", [RULE, replace(EXACT, held_out=True)])
    def test_a_champion_that_can_no_longer_be_measured_is_a_fault_of_the_machine(
        self, rule: KeepRule
    ) -> None:
        broken = Unmeasured(TrialStatus.CRASH, "boom")
        with pytest.raises(Unmeasured, match="the best, best, could not be measured again 3 times") as failed:
            decided(lambda commit, *_: broken if commit == "best" else 15.0, rule)
        assert failed.value.status is TrialStatus.INFRA_ERROR


def test_a_kept_trial_is_the_next_champion_by_its_record() -> None:
    ruled, _ = decided(drawn(new=15.0, best=10.0))

    record = json.loads(json.dumps(ruled.record()))

    champion = Champion.of(9, ruled.commit, record)
    assert champion == Champion(9, "new", ruled.score, ruled.samples, ruled.seeds, gained=ruled.gained_now)
    assert record["means"] == ruled.means
