"""The lineage part of a specialist's prompt: what is best, what was tried, what came of it, what was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ratchet.kernel import Misuse, NotFound, TrialStatus, exp_id
from ratchet.ledger.lessons import lessons_at
from ratchet.ledger.lineage_page import Lengths, LineagePage, Named
from ratchet.ledger.research import Standing, get_standing
from ratchet.research.views._calibration import expectations_of
from ratchet.research.views._insights import different
from ratchet.research.views._leaderboard import TOP, leaderboard_head
from ratchet.research.views._status import better
from ratchet.research.views.activity import activity_head
from ratchet.research.views.advice import repeated, saturation
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.misses import nearest
from ratchet.research.views.sections import Entry, Section, fit
from ratchet.research.views.told import Told, told_trials
from ratchet.research.views.words import cell, number, signed, table

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_pages import Key

LEAST_CHARS = 2000
_LINEAGE = "Lineage of the best, and what was made from it"
_COUNTED = [(each, str(each)) for each in TrialStatus if each.tried and each is not TrialStatus.BASELINE]
_PAGE = LineagePage(
    Lengths(
        own=12,
        recent=30,
        # One more than shown: the baseline is among them, and is not something that was kept.
        kept=TOP + 1,
        missed=10,
        line=12,
        children=12,
        lessons=30,
    )
)


def lineage_view(
    tx: Transaction,
    run_id: int,
    specialist: str,
    *,
    budget_chars: int = 12_000,
    standing: Standing | None = None,
) -> str:
    """What `specialist` is shown of the run, in no more than `budget_chars` characters.

    `standing` is looked up unless it is at hand. Raises `Misuse` for a budget that leaves no room for the best,
    `NotFound` for a run that is not research.
    """
    if budget_chars < LEAST_CHARS:
        raise Misuse(
            f"a lineage view of {budget_chars} characters would be empty",
            hint=f"give it at least {LEAST_CHARS}",
        )
    standing = standing or get_standing(tx, run_id)
    best, label = standing.best, standing.score_field
    named = _PAGE.read(tx, run_id, specialist=specialist, focus=best or 0, direction=standing.direction)
    if best is not None and not named.line:
        raise NotFound("trial", f"{exp_id(best)} of run {run_id}")
    told = told_trials(tx, run_id, label, named.trials())
    baseline = baseline_of(tx, standing)
    own, recent, line = (_those(told, keys) for keys in (named.own, named.recent, named.line))
    kept = _kept(told, named.kept)
    lessons = different(lessons_at(tx, named.lessons))
    sections = (
        Section("Current best", 0.0, _best(standing, baseline, named, told)),
        Section("Take note", 0.12, _advice(baseline, own, recent, kept, specialist)),
        Section("Key insights", 0.20, [Entry(text) for text in lessons.lines()]),
        Section("Your last trials", 0.20, [each.own for each in own]),
        Section("Near misses", 0.12, _missed(standing, baseline, _those(told, named.missed))),
        Section(_LINEAGE, 0.14, _lineage(best, line, _those(told, named.children))),
        Section(
            f"Leaderboard (last {len(kept)} kept)", 0.10, [each.leader for each in kept], _leaders(label)
        ),
        Section("Recent activity", 0.12, [each.latest for each in recent], _latest(label)),
    )
    return fit(sections, budget_chars)


def lineage_off_view(standing: Standing) -> str:
    """What a specialist is shown when lineage is turned off: the best's number and score, and nothing else."""
    if standing.best is None:
        return "There is no best yet."
    return f"Current best: {exp_id(standing.best)}, {cell(standing.score_field, 40)} {number(standing.best_score)}."


def _those(told: Mapping[int, Told], keys: Sequence[Key]) -> list[Told]:
    return [told[number] for number, _ in keys]


def _kept(told: Mapping[int, Told], keys: Sequence[Key]) -> list[Told]:
    """In the order of keeping: of trials side by side the one that was handed in last need not be the last one kept."""
    order = sorted([(ended_at or 0, number) for number, ended_at in keys], reverse=True)
    return [told[number] for _, number in order if told[number].trial.status is TrialStatus.KEEP][:TOP]


def _best(
    standing: Standing, baseline: Baseline | None, named: Named, told: Mapping[int, Told]
) -> list[Entry]:
    goal = f"{cell(standing.score_field, 40)}, {better(standing.direction)}"
    first = Entry(f"- Score: {goal}. Keep policy: {cell(standing.keep_policy, 40)}.")
    if standing.best is None:
        return [first, Entry("- There is no best yet.")]
    best = told[standing.best]
    entries = [first, Entry(best.best_line, number=standing.best)]
    if baseline is not None:
        delta = None if best.trial.score is None else best.trial.score - baseline.score
        known = f", noise (sd of {baseline.n}) {number(baseline.sd)}" if baseline.sd is not None else ""
        line = f"- Baseline 000: {number(baseline.score)}{known}. The best is {signed(delta)} from it."
        entries.append(Entry(line))
    counts = ", ".join([f"{named.ended[each]} {name}" for each, name in _COUNTED if each in named.ended])
    entries.append(Entry(f"- Trials so far: {standing.trials} ({counts or 'none ended'})."))
    return entries


def _advice(
    baseline: Baseline | None, own: list[Told], recent: list[Told], kept: list[Told], specialist: str
) -> list[Entry]:
    notes = [str(each) for each in repeated([each.trial for each in (*own, *recent, *kept)])]
    saturated = saturation([each.trial for each in own], 0.0 if baseline is None else baseline.noise)
    if saturated is not None:
        notes.insert(0, saturated)
    mine = expectations_of(specialist, [each.expectation for each in own if each.expectation is not None])
    if mine is not None and mine.trials >= 3:
        notes.append(
            f"Of your last {mine.trials} trials with a score you expected {signed(mine.expected)} on average and "
            f"measured {signed(mine.actual)}; {mine.right_way} moved the way you expected."
        )
    return [Entry(f"- {note}") for note in notes]


def _missed(standing: Standing, baseline: Baseline | None, missed: list[Told]) -> list[Entry]:
    found = nearest(standing, baseline, [each.trial for each in missed])
    told = {each.trial.number: each for each in missed}
    return [told[each.number].miss(found.gain(each)) for each in found.rows]


def _lineage(best: int | None, line: list[Told], children: list[Told]) -> list[Entry]:
    """The newest first, so that what is cut off is the oldest."""
    if not line:
        return []
    if best is None:
        return [line[0].root]
    entries = [line[0].best, *[each.ancestor for each in line[1:]]]
    earlier = line[-1].trial.depth
    if earlier:
        entries.append(Entry(f"- from {earlier} earlier ones"))
    return [*entries, *[each.child for each in children]]


@lru_cache(maxsize=64)
def _leaders(label: str) -> list[str]:
    return table(leaderboard_head(label), [])


@lru_cache(maxsize=64)
def _latest(label: str) -> list[str]:
    return table(activity_head(label), [])
