"""The last question to a new best: is it worse where no search looked?"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from ratchet.judges.comparison import look, look_shares
from ratchet.kernel import TrialStatus
from ratchet.research.adapter import KeepRule
from ratchet.research.keeping.decided import Decided, HeldOut, Phase, Side
from ratchet.research.keeping.rounds import Ask, Case, Rounds, Scores


def held_out_exactly(case: Case) -> Generator[Ask, Scores, HeldOut]:
    against = case.champion.held_out
    while against is None:
        scores = yield Ask((Side.CHAMPION,), Phase.HELD_OUT, case.rule.seed)
        against = scores.get(Side.CHAMPION)
    scores = yield Ask((Side.CHALLENGER,), Phase.HELD_OUT, case.rule.seed)
    score = scores[Side.CHALLENGER]
    gain = case.gain(score, against)
    return HeldOut(gain >= -case.rule.held_out_tolerance, score, against, gain, 1)


def held_out_confidently(case: Case) -> Generator[Ask, Scores, HeldOut]:
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
            losses,
            above=rule.held_out_tolerance,
            noise_sd=noise_sd,
            alpha=rule.alpha,
            share=shares[rounds.n],
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
