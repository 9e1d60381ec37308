"""The lineage part of a specialist's prompt: what is best, what was tried, what came of it, what was learned."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from ratchet.kernel import Misuse, NotFound, TrialStatus, exp_id
from ratchet.ledger.research import Standing, get_standing, lessons_at
from ratchet.ledger.trial_pages import Lengths, LineagePage, Named, trial_lines
from ratchet.research.views._knowledge import described, different
from ratchet.research.views._status import BaselineView, baseline_of, better
from ratchet.research.views.specialists import Expectation, expectation, expectations_of
from ratchet.research.views.text import (
    PromptEntry,
    PromptSection,
    cell,
    fit,
    number,
    one_line,
    signed,
    table,
    table_row,
)
from ratchet.research.views.trials import (
    TOP,
    activity_head,
    brief,
    kept_cells,
    leaderboard_head,
    nearest,
    status_of,
    tried_cells,
    why,
)

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_pages import Key
    from ratchet.ledger.trials import Trial


SATURATED_AFTER = 5
_LOOKED_AT = 400
_OF_NO_WORD = re.compile(r"[^\w.+-]|_")


@dataclass(frozen=True, slots=True)
class Repeated:
    """One idea that was submitted several times, oldest first."""

    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        said = ", ".join(f"{each.exp_id} {each.status or 'running'}" for each in self.trials[:6])
        return f"Submitted {len(self.trials)} times ({said}): {cell(self.trials[0].hypothesis, 120)}"


def saturation(own: Sequence[Trial], noise: float) -> str | None:
    """Advice for a specialist whose last trials, newest first in `own`, all moved the score by no more than noise."""
    ended = (each for each in own if each.status is not None and each.status.tried)
    last = list(islice(ended, SATURATED_AFTER))
    if len(last) < SATURATED_AFTER or any(each.status is TrialStatus.KEEP for each in last):
        return None
    moves = [abs(each.delta) for each in last if each.delta is not None]
    if not moves:
        return (
            f"None of your last {SATURATED_AFTER} trials has a valid score. Find out why from their reasons, "
            "and make the next change small enough that it must run."
        )
    if max(moves) > noise:
        return None
    moved = f"more than this run's own noise ({number(noise)})" if noise else "at all"
    return (
        f"None of your last {SATURATED_AFTER} trials moved the score {moved}. This direction is used up: start from "
        "another trial, combine a near miss with the best, or change something of another kind."
    )


def repeated(trials: Iterable[Trial], *, limit: int = 3) -> list[Repeated]:
    """Ideas that were submitted more than once, the most often repeated first."""
    different = {each.number: each for each in trials if each.status is not TrialStatus.BASELINE}
    ideas = {at: _idea(each.hypothesis) for at, each in different.items()}
    if len(set(ideas.values())) == len(ideas):
        return []
    groups: dict[tuple[str, ...], dict[int, Trial]] = defaultdict(dict)
    for at, idea in ideas.items():
        groups[idea][at] = different[at]
    again = [group for idea, group in groups.items() if idea and len(group) > 1]
    again.sort(key=lambda group: (len(group), max(group)), reverse=True)
    return [Repeated(tuple(group[at] for at in sorted(group))) for group in again[:limit]]


@lru_cache(maxsize=2048)
def _idea(hypothesis: str) -> tuple[str, ...]:
    """What a hypothesis says, however it is spaced, capitalised and punctuated. Numbers stay: 0.1 is not 0.2."""
    plain = _OF_NO_WORD.sub(" ", hypothesis[:_LOOKED_AT])
    return tuple([word for word in [word.strip(".") for word in plain.casefold().split()] if word])


_ABOVE = "(above)"


class PromptTrial:
    """The entries of a trial in each section, made when one is asked for. `label` is what the run calls its score."""

    def __init__(self, trial: Trial, label: str) -> None:
        self.trial = trial
        self._label = label

    @cached_property
    def own(self) -> PromptEntry:
        """Among the last trials of whoever made it."""
        trial = self.trial
        numbers = f"{trial.exp_id} {status_of(trial)} {number(trial.score)}"
        expected = one_line(trial.expected_delta, 20)
        delta = f" (Δ {signed(trial.delta)}, expected {cell(expected, 20) or 'nothing'})"
        origin = "" if trial.parent is None else f" from {exp_id(trial.parent)}"
        reason = why(trial, 320)
        text = f"{cell(trial.hypothesis, 200)}{' — ' if reason else ''}{reason}"
        facts = f"- {numbers}{delta if trial.delta is not None else ''}{origin}"
        return PromptEntry(f"{facts}: {text}", f"{facts} {_ABOVE}: {reason}", trial.number)

    @cached_property
    def latest(self) -> PromptEntry:
        """Among what was tried last."""
        full, short = tried_cells(self.trial), tried_cells(self.trial, text=_ABOVE)
        return PromptEntry(table_row(full), table_row(short), self.trial.number)

    @cached_property
    def leader(self) -> PromptEntry:
        """Among what was kept."""
        full, short = kept_cells(self.trial), kept_cells(self.trial, text=_ABOVE)
        return PromptEntry(table_row(full), table_row(short), self.trial.number)

    @cached_property
    def ancestor(self) -> PromptEntry:
        """Among what the best came from."""
        return self._relative("from ")

    @cached_property
    def child(self) -> PromptEntry:
        """Among what was made from the best."""
        return self._relative("child ")

    @cached_property
    def root(self) -> PromptEntry:
        """What the run began with, where there is no best."""
        return self._relative("")

    @cached_property
    def best(self) -> PromptEntry:
        """As the best, at the head of its lineage."""
        return self._relative("", best=True)

    @cached_property
    def best_line(self) -> str:
        """As the best, before everything else."""
        return f"- Best: {brief(self.trial, self._label)} {cell(self.trial.hypothesis, 400)}"

    @cached_property
    def expectation(self) -> Expectation | None:
        return expectation(self.trial)

    # Gains are other ones when there is another best, which is seldom.
    @lru_cache(maxsize=512)  # noqa: B019 - as many are kept alive at most
    def miss(self, gain: float) -> PromptEntry:
        """Among near misses, with a score that is by `gain` better than the best."""
        distance = (
            f"{number(gain)} better than the best" if gain > 0 else f"{number(-gain)} short of the best"
        )
        facts = f"- {brief(self.trial, self._label)} {distance}"
        words = f"{cell(self.trial.hypothesis, 160)} — {why(self.trial, 200)}"
        return PromptEntry(f"{facts}: {words}", f"{facts} {_ABOVE}", self.trial.number)

    def _relative(self, relation: str, *, best: bool = False) -> PromptEntry:
        trial, label = self.trial, self._label
        full = f"- {relation}{described(trial, label, best=best)}"
        return PromptEntry(full, f"- {relation}{brief(trial, label)} {_ABOVE}", trial.number)


# By everything that is known of it, since a trial in flight may change.
@lru_cache(maxsize=512)
def _in_words(trial: Trial, label: str) -> PromptTrial:
    return PromptTrial(trial, label)


def prompt_trials(tx: Transaction, run_id: int, label: str, keys: Set[Key]) -> dict[int, PromptTrial]:
    """The trials with these keys by their numbers."""
    wanted = list(keys)
    known = tx.remembered.several(
        [(PromptTrial, run_id, label, number, ended_at) for number, ended_at in wanted]
    )
    shown = {each.trial.number: each for each in known if each is not None}
    if len(shown) < len(wanted):
        missing = [key for key in wanted if key[0] not in shown]
        read = [_in_words(trial, label) for trial in trial_lines(tx, run_id, missing)]
        shown |= {each.trial.number: each for each in read}
        ended = [each for each in read if each.trial.ended_at is not None]
        tx.remembered.add(
            {(PromptTrial, run_id, label, each.trial.number, each.trial.ended_at): each for each in ended}
        )
    return shown


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
    shown = prompt_trials(tx, run_id, label, named.trials())
    baseline = baseline_of(tx, standing)
    own, recent, line = (_those(shown, keys) for keys in (named.own, named.recent, named.line))
    kept = _kept(shown, named.kept)
    lessons = different(lessons_at(tx, named.lessons)).key()
    sections = (
        PromptSection("Current best", 0.0, _best(standing, baseline, named, shown)),
        PromptSection("Take note", 0.12, _advice(baseline, own, recent, kept, specialist)),
        PromptSection("Key insights", 0.20, [PromptEntry(text) for text in lessons.lines()]),
        PromptSection("Your last trials", 0.20, [each.own for each in own]),
        PromptSection("Near misses", 0.12, _missed(standing, baseline, _those(shown, named.missed))),
        PromptSection(_LINEAGE, 0.14, _lineage(best, line, _those(shown, named.children))),
        PromptSection(
            f"Leaderboard (last {len(kept)} kept)", 0.10, [each.leader for each in kept], _leaders(label)
        ),
        PromptSection("Recent activity", 0.12, [each.latest for each in recent], _latest(label)),
    )
    return fit(sections, budget_chars)


def lineage_off_view(standing: Standing) -> str:
    """What a specialist is shown when lineage is turned off: the best's number and score, and nothing else."""
    if standing.best is None:
        return "There is no best yet."
    return f"Current best: {exp_id(standing.best)}, {cell(standing.score_field, 40)} {number(standing.best_score)}."


def _those(shown: Mapping[int, PromptTrial], keys: Sequence[Key]) -> list[PromptTrial]:
    return [shown[number] for number, _ in keys]


def _kept(shown: Mapping[int, PromptTrial], keys: Sequence[Key]) -> list[PromptTrial]:
    """In the order of keeping: of trials side by side the one that was handed in last need not be the last one kept."""
    order = sorted([(ended_at or 0, number) for number, ended_at in keys], reverse=True)
    return [shown[number] for _, number in order if shown[number].trial.status is TrialStatus.KEEP][:TOP]


def _best(
    standing: Standing, baseline: BaselineView | None, named: Named, shown: Mapping[int, PromptTrial]
) -> list[PromptEntry]:
    goal = f"{cell(standing.score_field, 40)}, {better(standing.direction)}"
    first = PromptEntry(f"- Score: {goal}. Keep policy: {cell(standing.keep_policy, 40)}.")
    if standing.best is None:
        return [first, PromptEntry("- There is no best yet.")]
    best = shown[standing.best]
    entries = [first, PromptEntry(best.best_line, number=standing.best)]
    if baseline is not None:
        delta = None if best.trial.score is None else best.trial.score - baseline.score
        known = f", noise (sd of {baseline.n}) {number(baseline.sd)}" if baseline.sd is not None else ""
        line = f"- Baseline 000: {number(baseline.score)}{known}. The best is {signed(delta)} from it."
        entries.append(PromptEntry(line))
    counts = ", ".join([f"{named.ended[each]} {name}" for each, name in _COUNTED if each in named.ended])
    entries.append(PromptEntry(f"- Trials so far: {standing.trials} ({counts or 'none ended'})."))
    return entries


def _advice(
    baseline: BaselineView | None,
    own: list[PromptTrial],
    recent: list[PromptTrial],
    kept: list[PromptTrial],
    specialist: str,
) -> list[PromptEntry]:
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
    return [PromptEntry(f"- {note}") for note in notes]


def _missed(
    standing: Standing, baseline: BaselineView | None, missed: list[PromptTrial]
) -> list[PromptEntry]:
    found = nearest(standing, baseline, [each.trial for each in missed])
    shown = {each.trial.number: each for each in missed}
    return [shown[each.number].miss(found.gain(each)) for each in found.rows]


def _lineage(best: int | None, line: list[PromptTrial], children: list[PromptTrial]) -> list[PromptEntry]:
    """The newest first, so that what is cut off is the oldest."""
    if not line:
        return []
    if best is None:
        return [line[0].root]
    entries = [line[0].best, *[each.ancestor for each in line[1:]]]
    earlier = line[-1].trial.depth
    if earlier:
        entries.append(PromptEntry(f"- from {earlier} earlier ones"))
    return [*entries, *[each.child for each in children]]


@lru_cache(maxsize=64)
def _leaders(label: str) -> list[str]:
    return table(leaderboard_head(label), [])


@lru_cache(maxsize=64)
def _latest(label: str) -> list[str]:
    return table(activity_head(label), [])
