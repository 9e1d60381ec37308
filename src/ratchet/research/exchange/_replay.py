"""Deciding imported rows anew, to see whether the history follows from its scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.kernel import Misuse, TrialStatus, exp_id
from ratchet.research.exchange.numbers import id_text
from ratchet.research.exchange.rows import Row
from ratchet.research.exchange.state import Imported
from ratchet.research.keeping._strict import delta_text, strict


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A column of a row that is not what the rule gives."""

    exp_id: str
    line: int
    column: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.exp_id} (line {self.line}): {self.column} is {self.found!r}, the rule gives {self.expected!r}"


@dataclass(frozen=True, slots=True)
class Replay:
    """`kept` are the numbers that the rule keeps, in order; `best` is the last of them, or the baseline."""

    kept: tuple[int, ...]
    best: int | None
    best_score: float | None
    mismatches: tuple[Mismatch, ...]

    @property
    def agrees(self) -> bool:
        return not self.mismatches


def replay(imported: Imported, policy: str = "strict") -> Replay:
    """Apply the rule to the rows in their order.

    Only a row that was kept or discarded is decided: why another one counts for nothing is not in the rows.
    """
    if policy != "strict":
        raise Misuse(
            f"rows cannot be replayed by the policy {policy!r}: they hold one measurement of each trial",
            hint="use strict",
        )
    return _Replaying(imported).run()


class _Replaying:
    def __init__(self, imported: Imported) -> None:
        self.imported = imported
        self.best: Row | None = None
        self.best_score = 0.0
        self.kept: list[int] = []
        self.mismatches: list[Mismatch] = []

    def run(self) -> Replay:
        for index, row in enumerate(self.imported.rows):
            for column, expected in self._expected(index, row):
                found = self.imported.layout.cell(row.cells, column)
                if column in self.imported.layout.places and found != expected:
                    self.mismatches.append(Mismatch(row.exp_id, row.line, column, found, expected))
        best = self.best
        self._compare_best(best)
        return Replay(
            tuple(self.kept),
            None if best is None else best.number,
            None if best is None else self.best_score,
            tuple(self.mismatches),
        )

    def _expected(self, index: int, row: Row) -> Iterator[tuple[str, str]]:
        """What the columns of a row should be, given the best before it."""
        yield "exp_id", exp_id(index)
        yield "baseline_exp", id_text(None if self.best is None else self.best.number)
        if index == 0:
            yield "status", str(TrialStatus.BASELINE)
        if row.status not in (TrialStatus.KEEP, TrialStatus.DISCARD):
            yield "delta_vs_best", ""
            if row.status is TrialStatus.BASELINE and row.score is not None:
                self._take(row, row.score)
            return
        if self.best is None:
            # Nothing to compare it with: the first score there is becomes the best.
            if row.score is not None:
                self._keep(row, row.score)
            return
        decided = strict(row.score, self.best_score, self.imported.direction)
        yield "status", str(decided.status)
        yield "delta_vs_best", delta_text(decided.delta)
        if decided.kept and row.score is not None:
            yield "snapshot_path", self._snapshot(row)
            self._keep(row, row.score)

    def _snapshot(self, row: Row) -> str:
        """A kept row names its snapshot; one that names none, of a run without snapshots, is fine too."""
        layout = self.imported.layout
        place = f"snapshots/{row.exp_id}_{layout.cell(row.cells, 'domain')}"
        return place if layout.cell(row.cells, "snapshot_path") else ""

    def _keep(self, row: Row, score: float) -> None:
        self.kept.append(row.number)
        self._take(row, score)

    def _take(self, row: Row, score: float) -> None:
        self.best, self.best_score = row, score

    def _compare_best(self, best: Row | None) -> None:
        told = self.imported.best_row
        if best is not None and (told is None or told.number != best.number):
            found = "" if told is None else told.exp_id
            self.mismatches.append(Mismatch(best.exp_id, best.line, "best", found, best.exp_id))
