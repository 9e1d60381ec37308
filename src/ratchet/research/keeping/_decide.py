"""Deciding on a challenger by measuring it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ratchet.kernel import Direction, TrialStatus
from ratchet.research.adapter import KeepRule
from ratchet.research.keeping.decided import Champion, Decided, Phase, Side, Taken
from ratchet.research.keeping.deciding import deciding
from ratchet.research.keeping.noise import Noise
from ratchet.research.keeping.rounds import VOID_ROUNDS, Ask, Case
from ratchet.research.measurement import Measurement, Meter, Unmeasured


async def decide(
    meter: Meter,
    challenger: str,
    champion: Champion,
    rule: KeepRule,
    direction: Direction,
    noise: Noise,
    *,
    trial: int,
) -> Decided:
    """Measure the commit `challenger`, which is trial number `trial`, until it is clear whether it is kept.

    Raises `Unmeasured` when the challenger fails in any of its measurements, with the status of that failure; and with
    `infra_error` when the machine failed, or the champion can no longer be measured. The same arguments ask for the
    same measurements, so a decision that was cut off can be made again.
    """
    steps = deciding(Case(challenger, champion, rule, direction, noise, trial))
    taken: list[Taken] = []
    ask = next(steps)
    while True:
        scores = await _answer(
            meter, ask, {Side.CHALLENGER: challenger, Side.CHAMPION: champion.commit}, taken
        )
        _check_champion(champion, taken)
        try:
            ask = steps.send(scores)
        except StopIteration as ruled:
            decided: Decided = ruled.value
            return replace(decided, taken=tuple(taken))


async def _answer(
    meter: Meter, ask: Ask, commits: Mapping[Side, str], taken: list[Taken]
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
        scores[side] = measured.score
    return scores


def _taken(ask: Ask, side: Side, measured: Measurement) -> Taken:
    return Taken(
        side=side,
        phase=ask.phase,
        commit=measured.commit,
        seed=measured.seed,
        score=measured.score,
        measurements=measured.measurements,
        wall_ms=measured.wall_ms,
        facts=measured.facts,
    )


def _void(ask: Ask, commit: str, failed: Unmeasured) -> Taken:
    return Taken(
        side=Side.CHAMPION,
        phase=ask.phase,
        commit=commit,
        seed=ask.seed,
        score=None,
        problem=f"{failed.status}: {failed.reason}",
        facts=failed.facts,
    )


def _in_a_repeat(failed: Unmeasured, ask: Ask, taken: list[Taken]) -> Unmeasured:
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
    )


def _check_champion(champion: Champion, taken: list[Taken]) -> None:
    """A champion that fails now and then costs rounds; one that keeps failing makes every comparison void, and that is
    nobody's idea that failed but the world that changed."""
    problems = [each.problem for each in taken if each.score is None]
    if len(problems) >= VOID_ROUNDS:
        raise Unmeasured(
            TrialStatus.INFRA_ERROR,
            f"the best, {champion.commit}, could not be measured again {len(problems)} times: {problems[-1]}",
        )
