"""The tree of a run's trials by their numbers alone, so that a long run fits into memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from ratchet.kernel import exp_id
from ratchet.ledger import Transaction
from ratchet.ledger.trial_pages import parents, trials_at
from ratchet.ledger.trial_rows import Trial

_BATCH = 100


class Outline:
    """Children in the order of their ids as text, as the format has it."""

    def __init__(self, tx: Transaction, run_id: int) -> None:
        self._tx = tx
        self._run_id = run_id
        self._children: dict[int | None, list[int]] = defaultdict(list)
        for number, parent in parents(tx, run_id):
            self._children[parent].append(number)
        for found in self._children.values():
            found.sort(key=exp_id)

    def children(self, number: int) -> list[int]:
        return self._children.get(number, [])

    def trials(self, numbers: Iterator[int]) -> Iterator[Trial]:
        """The trials with these numbers, in the order given."""
        while wanted := list(islice(numbers, _BATCH)):
            found = {trial.number: trial for trial in trials_at(self._tx, self._run_id, wanted)}
            yield from (found[number] for number in wanted)

    def preorder(self) -> Iterator[tuple[Trial, list[str]]]:
        """Every trial after its parent, with the ids on the way to it, itself last."""
        numbers: list[int] = []
        way: list[str] = []
        for trial in self.trials(self._numbers()):
            while numbers and numbers[-1] != trial.parent:
                numbers.pop()
                way.pop()
            numbers.append(trial.number)
            way.append(trial.exp_id)
            yield trial, way

    def _numbers(self) -> Iterator[int]:
        waiting = list(reversed(self._children.get(None, [])))
        while waiting:
            number = waiting.pop()
            yield number
            waiting += reversed(self._children.get(number, []))
