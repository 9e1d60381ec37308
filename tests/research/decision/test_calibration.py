"""Measuring the baseline and its noise."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from ratchet.kernel import Misuse, TrialStatus
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import Champion, MeasuredBaseline, calibrate
from ratchet.research.measurement.result import Unmeasured
from tests.research.decision.scripted import Score, ScriptedMeter

NOISY = KeepRule(seed=10, baseline_repeats=4)


def calibrated(score: Score, rule: KeepRule) -> tuple[MeasuredBaseline, ScriptedMeter]:
    meter = ScriptedMeter(score)
    return asyncio.run(calibrate(meter, "base", rule)), meter


def test_a_noisy_baseline_is_measured_with_one_seed_after_the_other_and_its_first_seed_twice() -> None:
    baseline, meter = calibrated(lambda _commit, seed, _held_out: float(seed), NOISY)

    assert [seed for _, seed, _ in meter.asked] == [10, 11, 12, 13, 10]
    assert (baseline.samples, baseline.seeds) == ((10.0, 11.0, 12.0, 13.0), (10, 11, 12, 13))
    assert (baseline.mean, baseline.n, baseline.again) == (11.5, 4, 10.0)
    assert baseline.sd == pytest.approx(1.2909944)
    assert baseline.means == {"twice": 23.0}


def test_noise_that_comes_from_the_seed_alone_is_told_from_noise_that_does_not() -> None:
    chance = random.Random(1)

    seeded, _ = calibrated(lambda _commit, seed, _held_out: float(seed), NOISY)
    unseeded, _ = calibrated(lambda *_: chance.random(), NOISY)

    assert seeded.noise.repeatable
    assert not unseeded.noise.repeatable


def test_the_held_out_split_has_a_noise_of_its_own() -> None:
    rule = KeepRule(baseline_repeats=3, held_out=True)
    baseline, meter = calibrated(lambda _c, seed, held_out: 10.0 * seed if held_out else 1.0, rule)

    assert baseline.held_out == (0.0, 10.0, 20.0)
    assert (baseline.noise.sd, baseline.noise.held_out_sd) == (0.0, 10.0)
    assert [seed for _, seed, held_out in meter.asked if held_out] == [0, 1, 2, 0]


def test_a_deterministic_baseline_is_measured_once_and_its_claim_once_more() -> None:
    baseline, meter = calibrated(lambda *_: 2.5, KeepRule(deterministic=True, seed=3))

    assert meter.asked == [("base", 3, False)] * 2
    assert (baseline.samples, baseline.sd) == ((2.5,), None)


@pytest.mark.parametrize("liar", [False, True])
def test_a_task_that_only_says_it_is_deterministic_is_found_out_on_either_split(liar: bool) -> None:
    scores = iter(range(100))
    rule = KeepRule(deterministic=True, held_out=True)

    with pytest.raises(Misuse, match=r"says that it is deterministic, but seed 0 gave .* and then") as found:
        calibrated(lambda _c, _s, held_out: float(next(scores)) if held_out is liar else 1.0, rule)

    assert ("held-out" in str(found.value)) is liar
    assert "deterministic = false" in str(found.value.hint)


def test_the_strict_rule_measures_once_and_asks_for_no_proof() -> None:
    scores = iter(range(100))
    rule = KeepRule(policy="strict", held_out=True)
    baseline, meter = calibrated(lambda *_: float(next(scores)), rule)
    assert (len(meter.asked), baseline.samples) == (1, (0.0,))


def test_a_baseline_that_fails_in_any_repeat_is_unmeasured() -> None:
    failure = Unmeasured(TrialStatus.CRASH, "it fell over")
    with pytest.raises(Unmeasured, match="fell over"):
        calibrated(lambda _c, seed, _h: failure if seed == 12 else 1.0, NOISY)


def test_a_baseline_survives_json_and_becomes_the_first_champion() -> None:
    rule = KeepRule(baseline_repeats=3, held_out=True)
    baseline, _ = calibrated(lambda _c, seed, held_out: seed + 0.1 * held_out, rule)

    record = json.loads(json.dumps(baseline.record()))

    assert MeasuredBaseline.of(record) == baseline
    assert Champion.of(0, "base", record) == Champion(0, "base", 1.0, (0.0, 1.0, 2.0), (0, 1, 2), 1.1)


def test_a_baseline_that_was_told_has_no_known_noise() -> None:
    noise = MeasuredBaseline((1.5,), note="given").noise
    assert (noise.sd, noise.held_out_sd, noise.repeatable) == (None, None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "lucky"},
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"min_effect": -1.0},
        {"min_effect": float("nan")},
        {"held_out_tolerance": -0.1},
        {"seed": -1},
        {"least": 1},
        {"least": 5, "most": 4},
        {"most": 10**6},
        {"baseline_repeats": 1},
    ],
)
def test_a_rule_that_cannot_be_meant_is_misuse(wrong: dict[str, float]) -> None:
    with pytest.raises(Misuse):
        calibrated(lambda *_: 1.0, KeepRule(**wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [{"deterministic": True}, {"policy": "strict"}])
def test_rounds_are_no_matter_where_there_are_none(kind: dict[str, str]) -> None:
    rule = KeepRule(least=0, most=0, baseline_repeats=0, **kind)  # type: ignore[arg-type]
    assert calibrated(lambda *_: 1.0, rule)[0].samples == (1.0,)
