"""The improvement certificate, and who contradicts itself in it."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.kernel import Direction, Misuse, TrialStatus, Usage
from ratchet.research.adapter import KeepRule
from ratchet.research.decision import (
    Champion,
    Decided,
    Noise,
    certificate,
    certificate_json,
    check_certificate,
    decide,
    run_level,
)
from ratchet.research.decision._certificate import content_hash
from ratchet.research.measurement.result import Unmeasured
from tests.research.decision.scripted import ScriptedMeter

CHAMPION = Champion(7, "best", 10.0, (9.0, 10.0, 11.0), (40, 41, 42), held_out=5.0)
NOISE = Noise(sd=1.0, held_out_sd=1.0)
CONFIDENT = KeepRule(held_out=True)
RULES = {
    "confident": CONFIDENT,
    "deterministic": KeepRule(deterministic=True, held_out=True),
    "strict": KeepRule(policy="strict"),
}


def decided(rule: KeepRule, *, worth: float = 15.0, champion_fails: int = 0) -> Decided:
    chance = random.Random(3)
    failures = iter([True] * champion_fails)

    def score(commit: str, _seed: int, _held_out: bool) -> float | Unmeasured:
        if commit == "best" and next(failures, False):
            return Unmeasured(TrialStatus.CRASH, "boom")
        return chance.gauss(worth if commit == "new" else 10.0, 1.0)

    meter = ScriptedMeter(score)
    return asyncio.run(decide(meter, "new", CHAMPION, rule, Direction.MAX, NOISE, trial=9))


def certified(rule: KeepRule = CONFIDENT, ruled: Decided | None = None, **other: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "champion": CHAMPION,
        "rule": rule,
        "direction": Direction.MAX,
        "noise": NOISE,
        "trial": 9,
        "parent": "base",
        "diff_sha256": "d" * 64,
        "evaluator": "e" * 64,
        "environment": {"python": "3.11", "layers": ["namespaces"]},
        "usage": Usage(input_tokens=10, cost_microusd=7),
        "session": 3,
        "started_at": 1000,
        "ended_at": 2000,
    }
    return certificate(ruled or decided(rule), **{**given, **other})


def forged(change: Callable[[dict[str, Any]], object]) -> list[str]:
    """What is found in a certificate that was changed, its hash put right."""
    content = copy.deepcopy(certified())
    change(content)
    content["sha256"] = content_hash(content)
    return check_certificate(content)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("worth", [15.0, 10.4, 5.0])
def test_a_certificate_as_it_was_made_holds(rule: KeepRule, worth: float) -> None:
    content = certified(rule, decided(rule, worth=worth))
    assert check_certificate(content) == []
    assert check_certificate(json.loads(certificate_json(content))) == []


def test_it_holds_everything_that_the_decision_stands_on() -> None:
    ruled = decided(CONFIDENT)
    content = certified(ruled=ruled)

    assert (content["status"], content["commit"], content["parent"]) == ("keep", "new", "base")
    assert (content["diff_sha256"], content["evaluator"]) == ("d" * 64, "e" * 64)
    assert content["environment"] == {"python": "3.11", "layers": ["namespaces"]}
    assert (content["policy"], content["rule"]["alpha"]) == ("confident", 0.05)
    assert content["cost"] == {**content["cost"], "input_tokens": 10, "cost_microusd": 7}
    assert (content["session"], content["started_at"], content["ended_at"]) == (3, 1000, 2000)
    assert len(content["measurements"]) == len(ruled.taken)
    assert content["measurements"][0]["facts"] == {"exit_code": 0}
    assert content["test"]["p_value"] == ruled.p_value
    assert content["held_out"]["passed"]


def test_the_same_decision_gives_the_same_bytes() -> None:
    assert certificate_json(certified()) == certificate_json(certified())


def test_rounds_without_the_champion_are_told_and_hold() -> None:
    content = certified(ruled=decided(CONFIDENT, champion_fails=2))
    assert [each["problem"] for each in content["measurements"] if each["score"] is None] == [
        "crash: boom"
    ] * 2
    assert check_certificate(content) == []


def test_what_json_cannot_hold_is_misuse() -> None:
    with pytest.raises(Misuse, match="new"):
        certified(environment={"load": float("nan")})
    with pytest.raises(Misuse, match="new"):
        certified(environment={"path": object()})


def test_any_change_breaks_the_hash() -> None:
    content = certified()
    content["environment"]["python"] = "3.12"
    assert check_certificate(content) == ["the hash is not that of the content"]


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "score": (lambda c: c.update(score=16.0), "score is 16.0, but the measurements give"),
    "delta": (lambda c: c.update(delta=99.0), "delta is 99.0"),
    "status": (lambda c: c.update(status="discard"), "status is 'discard'"),
    "whom": (lambda c: c.update(compared_to=8), "compared_to is 8"),
    "reason": (lambda c: c.update(reason="trust me"), "reason is 'trust me'"),
    "p": (lambda c: c["test"].update(p_value=1e-9), "test is"),
    "interval": (lambda c: c["test"].update(low=4.0), "test is"),
    "held out": (lambda c: c["held_out"].update(score=20.0), "held_out is"),
    "samples": (lambda c: c["samples"].pop(), "samples is"),
    "a sample": (
        lambda c: c["measurements"][1].update(score=c["measurements"][1]["score"] + 1e-6),
        "but the measurements give",
    ),
    "a seed": (lambda c: c["measurements"][1].update(seed=5), "there is the"),
    "a side": (lambda c: c["measurements"][0].update(side="champion"), "there is the champion"),
    "a split": (lambda c: c["measurements"][0].update(held_out=True), "was to be measured"),
    "a commit": (
        lambda c: c["measurements"][0].update(commit="other"),
        "the commit other was measured, not new",
    ),
    "one too few": (lambda c: c["measurements"].pop(), "there is no measurement of"),
    "one too many": (
        lambda c: c["measurements"].append(c["measurements"][-1]),
        "1 measurements were taken after",
    ),
    "no score": (lambda c: c["measurements"][0].update(score=None), "no finite number"),
    "too large": (lambda c: c["measurements"][0].update(score=1e200), "no finite number"),
    "a text": (lambda c: c["measurements"][0].update(score="12"), "cannot be read"),
    "alpha": (lambda c: c["rule"].update(alpha=0.7), "alpha must lie between"),
    "policy": (lambda c: c.update(policy="strict"), "the policy is not that of the rule"),
    "direction": (lambda c: c.update(direction="min"), "measurements were taken after"),
    "champion": (lambda c: c["champion"].update(score=3.0), "not the mean of its samples"),
    "no samples": (lambda c: c["champion"].update(samples=[], seeds=[]), "not the mean of its samples"),
    "seeds": (lambda c: c["champion"].update(seeds=[1]), "cannot be read"),
    "trial": (lambda c: c.update(trial=10), "there is the"),
    "parent": (lambda c: c.update(parent="new"), "its own parent"),
    "times": (lambda c: c.update(ended_at=1), "ended before it started"),
    "evaluator": (lambda c: c.update(evaluator=""), "names no evaluator"),
    "change": (lambda c: c.update(diff_sha256=""), "names no change"),
    "cost": (lambda c: c["cost"].update(wall_ms=-1), "cannot be read"),
    "format": (lambda c: c.update(format="other"), "the format is 'other'"),
    "missing": (lambda c: c.pop("rule"), "cannot be read"),
}


@pytest.mark.parametrize(("change", "found"), FORGERIES.values(), ids=FORGERIES)
def test_a_contradiction_is_found_and_named(change: Callable[[dict[str, Any]], object], found: str) -> None:
    assert any(found in problem for problem in forged(change)), forged(change)


def test_a_champion_that_failed_too_often_decides_nothing() -> None:
    def fail(content: dict[str, Any]) -> None:
        for each in [each for each in content["measurements"] if each["side"] == "champion"][:3]:
            each["score"] = None

    assert any("failed too often" in problem for problem in forged(fail))


def test_a_lucky_first_sight_cannot_be_passed_off_as_the_proof() -> None:
    """A noisy decision cut down to its first measurement and called deterministic."""

    def cut(content: dict[str, Any]) -> None:
        content["rule"]["deterministic"] = True
        content["measurements"] = content["measurements"][:1]

    assert any("but the measurements give" in each or "there is" in each for each in forged(cut))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.soak
@settings(deadline=None)
@given(st.sampled_from(sorted(certified())), json_values)
def test_whatever_stands_in_a_certificate_checking_it_gives_an_answer(key: str, value: object) -> None:
    content = {**certified(replace(CONFIDENT, held_out=False)), key: value}
    assert isinstance(check_certificate(content), list)


@pytest.mark.soak
@settings(deadline=None)
@given(st.sampled_from(["rule", "noise", "champion"]), st.data())
def test_whatever_numbers_it_was_decided_by_checking_gives_an_answer(part: str, data: st.DataObject) -> None:
    content = certified()
    name = data.draw(st.sampled_from(sorted(content[part])))
    value = data.draw(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
    content[part] = {**content[part], name: value}
    assert isinstance(check_certificate(content), list)


def test_the_level_of_a_run_is_part_of_the_proof() -> None:
    chance = random.Random(3)
    meter = ScriptedMeter(lambda commit, _seed, _held: chance.gauss(15.0 if commit == "new" else 10.0, 1.0))
    rule, so_far = KeepRule(), {"keeps": 2, "planned": 200}
    level = run_level(rule.alpha, 9, **so_far)
    ruled = asyncio.run(decide(meter, "new", CHAMPION, rule, Direction.MAX, NOISE, trial=9, level=level))
    assert ruled.kept
    made = certified(rule, ruled, run=so_far)
    assert check_certificate(made) == []
    assert made["test"]["level"] == level
    forged = copy.deepcopy(made)
    forged["run"]["keeps"] = 100
    forged["sha256"] = content_hash(forged)
    assert check_certificate(forged)
