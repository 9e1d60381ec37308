"""A trial as prompts tell it. One prompt after the other shows nearly the same trials, so each is put in words once."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ratchet.kernel import exp_id
from ratchet.ledger.trial_pages import trial_lines
from ratchet.research.views._calibration import Expectation, expectation
from ratchet.research.views._leaderboard import kept_cells
from ratchet.research.views._tree import described
from ratchet.research.views.activity import tried_cells
from ratchet.research.views.row import brief, status_of, why
from ratchet.research.views.sections import Entry
from ratchet.research.views.words import cell, number, one_line, signed, table_row

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_pages import Key
    from ratchet.ledger.trial_rows import Trial

_ABOVE = "(above)"


class Told:
    """The entries of a trial in each section, made when one is asked for. `label` is what the run calls its score."""

    def __init__(self, trial: Trial, label: str) -> None:
        self.trial = trial
        self._label = label

    @cached_property
    def own(self) -> Entry:
        """Among the last trials of whoever made it."""
        trial = self.trial
        numbers = f"{trial.exp_id} {status_of(trial)} {number(trial.score)}"
        expected = one_line(trial.expected_delta, 20)
        delta = f" (Δ {signed(trial.delta)}, expected {cell(expected, 20) or 'nothing'})"
        origin = "" if trial.parent is None else f" from {exp_id(trial.parent)}"
        reason = why(trial, 320)
        text = f"{cell(trial.hypothesis, 200)}{' — ' if reason else ''}{reason}"
        facts = f"- {numbers}{delta if trial.delta is not None else ''}{origin}"
        return Entry(f"{facts}: {text}", f"{facts} {_ABOVE}: {reason}", trial.number)

    @cached_property
    def latest(self) -> Entry:
        """Among what was tried last."""
        full, short = tried_cells(self.trial), tried_cells(self.trial, _ABOVE)
        return Entry(table_row(full), table_row(short), self.trial.number)

    @cached_property
    def leader(self) -> Entry:
        """Among what was kept."""
        full, short = kept_cells(self.trial), kept_cells(self.trial, text=_ABOVE)
        return Entry(table_row(full), table_row(short), self.trial.number)

    @cached_property
    def ancestor(self) -> Entry:
        """Among what the best came from."""
        return self._relative("from ")

    @cached_property
    def child(self) -> Entry:
        """Among what was made from the best."""
        return self._relative("child ")

    @cached_property
    def root(self) -> Entry:
        """What the run began with, where there is no best."""
        return self._relative("")

    @cached_property
    def best(self) -> Entry:
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
    def miss(self, gain: float) -> Entry:
        """Among near misses, with a score that is by `gain` better than the best."""
        distance = (
            f"{number(gain)} better than the best" if gain > 0 else f"{number(-gain)} short of the best"
        )
        facts = f"- {brief(self.trial, self._label)} {distance}"
        words = f"{cell(self.trial.hypothesis, 160)} — {why(self.trial, 200)}"
        return Entry(f"{facts}: {words}", f"{facts} {_ABOVE}", self.trial.number)

    def _relative(self, relation: str, *, best: bool = False) -> Entry:
        trial, label = self.trial, self._label
        full = f"- {relation}{described(trial, label, best=best)}"
        return Entry(full, f"- {relation}{brief(trial, label)} {_ABOVE}", trial.number)


# By everything that is known of it, since a trial in flight may change.
@lru_cache(maxsize=512)
def _in_words(trial: Trial, label: str) -> Told:
    return Told(trial, label)


def told_trials(tx: Transaction, run_id: int, label: str, keys: Set[Key]) -> dict[int, Told]:
    """The trials with these keys by their numbers."""
    wanted = list(keys)
    known = tx.remembered.several([(Told, run_id, label, number, ended_at) for number, ended_at in wanted])
    told = {each.trial.number: each for each in known if each is not None}
    if len(told) < len(wanted):
        missing = [key for key in wanted if key[0] not in told]
        read = [_in_words(trial, label) for trial in trial_lines(tx, run_id, missing)]
        told |= {each.trial.number: each for each in read}
        ended = [each for each in read if each.trial.ended_at is not None]
        tx.remembered.add(
            {(Told, run_id, label, each.trial.number, each.trial.ended_at): each for each in ended}
        )
    return told
