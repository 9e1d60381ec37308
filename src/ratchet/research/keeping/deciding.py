"""How a decision goes, without the measuring: it asks for scores, is told them, and rules in the end.

Whoever drives it brings the scores: `decide` from a meter, `check_certificate` from a record. Both so come to the same
ruling, or the record is wrong.
"""

from __future__ import annotations

from collections.abc import Generator

from ratchet.judges.comparison import PAIRED, Look, look, look_shares
from ratchet.kernel import TrialStatus
from ratchet.research.keeping._strict import delta_text, strict
from ratchet.research.keeping.decided import Decided, Phase, Side
from ratchet.research.keeping.held_out import held_out_confidently, held_out_exactly, with_held_out
from ratchet.research.keeping.rounds import Ask, Case, Rounds, Scores
from ratchet.research.keeping.rule import STRICT, check_rule

# A mean of one round may lie on the wrong side by chance; of two it does so seldom enough to give up.
_HOPE_ROUNDS = 2

Deciding = Generator[Ask, Scores, Decided]


def deciding(case: Case) -> Deciding:
    """Ask for what is needed and rule. Raises `Misuse` for a rule that cannot be meant."""
    check_rule(case.rule)
    if case.rule.policy == STRICT:
        return (yield from _strictly(case))
    if case.rule.deterministic:
        return (yield from _exactly(case))
    return (yield from _confidently(case))


def _strictly(case: Case) -> Deciding:
    score = yield from _first(case.rule.seed)
    best = case.champion.score
    ruled = strict(score, best, case.direction)
    how = "is better than" if ruled.kept else "is not better than"
    reason = f"{score:g} {how} the {best:g} of {case.best} ({delta_text(score - best)})"
    return _once(case, ruled.status, score, best, case.rule.seed, "strict", reason)


def _exactly(case: Case) -> Deciding:
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


def _confidently(case: Case) -> Deciding:
    """A noisy task: one look at the challenger, and side by side with the champion if it is promising."""
    rule = case.rule
    seed, hurdle = _hurdle(case)
    first = yield from _first(seed)
    if case.gain(first, hurdle) <= rule.min_effect:
        reason = f"{first:g} at first sight is not better than the {hurdle:g} of {case.best}{case.wanted}"
        return _once(case, TrialStatus.DISCARD, first, hurdle, seed, "first sight", reason)
    # What made it promising is not used again: it was picked for being good.
    rounds = Rounds(case)
    shares = look_shares(rule.least, rule.most)
    seeds = case.seeds()
    looks: list[Look] = []
    while True:
        yield from rounds.another(Phase.ROUND, seeds)
        if rounds.n in shares:
            looks.append(_better(case, rounds, shares[rounds.n]))
            if looks[-1].p_value <= rule.alpha:
                break
        hopeless = rounds.n >= _HOPE_ROUNDS and rounds.gain <= rule.min_effect
        if hopeless or rounds.n == rule.most:
            return _ruled(case, TrialStatus.DISCARD, rounds, looks, f"{first:g} at first sight, but ")
    ruled = _ruled(case, TrialStatus.KEEP, rounds, looks, "")
    if rule.held_out:
        return with_held_out(ruled, (yield from held_out_confidently(case)), rule)
    return ruled


def _first(seed: int, phase: Phase = Phase.FIRST) -> Generator[Ask, Scores, float]:
    scores = yield Ask((Side.CHALLENGER,), phase, seed)
    return scores[Side.CHALLENGER]


def _hurdle(case: Case) -> tuple[int, float]:
    """With which seed to look first, and what to beat there.

    Where a seed says it all, like is held against like: a hard seed would else hide every gain, an easy one feign one.
    Trials take turns at the champion's seeds, so that none of them rules for long.
    """
    champion = case.champion
    if not champion.seeds:
        return case.rule.seed, champion.score
    at = case.trial % len(champion.seeds)
    return champion.seeds[at], champion.samples[at] if case.noise.repeatable else champion.score


def _better(case: Case, rounds: Rounds, share: float) -> Look:
    rule = case.rule
    return look(rounds.gains, above=rule.min_effect, noise_sd=case.noise.sd, alpha=rule.alpha, share=share)


def _once(
    case: Case, status: TrialStatus, score: float, against: float, seed: int, test: str, reason: str
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
    )


def _ruled(case: Case, status: TrialStatus, rounds: Rounds, looks: list[Look], before: str) -> Decided:
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
    )
