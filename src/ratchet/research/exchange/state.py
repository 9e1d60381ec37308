"""Reading a state directory of the original with every doubt remarked, and replaying its decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.kernel import Direction, Misuse, TrialStatus, exp_id
from ratchet.research.decision.rule import delta_text, strict
from ratchet.research.exchange.rows import (
    ColumnLayout,
    Irreparable,
    Remark,
    Remarks,
    ResultRow,
    TreeRow,
    UnfitRow,
    read_layout,
    read_row,
    read_tree,
    repair,
)
from ratchet.research.exchange.tsv import (
    BEST,
    CALIBRATION,
    KNOWLEDGE,
    RESULTS,
    RecordLines,
    TsvRecord,
    find_blackboard,
    id_text,
    open_file,
    read_bytes,
    read_id,
    records,
    score_text,
)

HEADING = "## Key Insights"
PLACEHOLDER = "*(One lesson to a bullet. This section is kept.)*"
_HEADING = re.compile(rf"^{HEADING}[ \t]*\r?$", re.MULTILINE)
_HINT = re.compile(r"\*\(.*\)\*\s*")
_BULLET = re.compile(r"(?:[-*+]|\d+[.)]) +")
_INDENT = "  "


def read_insights(knowledge: str) -> list[str]:
    """The lessons of a knowledge page: its bullets, and paragraphs that stand between them."""
    heading = _HEADING.search(knowledge)
    if heading is None:
        return []
    lessons: list[list[str]] = []
    # A lesson continues over blank lines as long as what follows is indented.
    ended = True
    for line in knowledge[heading.end() :].split("\n")[1:]:
        bullet = _BULLET.match(line)
        if _HINT.fullmatch(line):
            ended = True
        elif not line.strip():
            if lessons:
                lessons[-1].append("")
            ended = True
        elif bullet is not None:
            lessons.append([line[bullet.end() :]])
            ended = False
        elif line.startswith(_INDENT) and lessons:
            lessons[-1].append(line.removeprefix(_INDENT))
            ended = False
        elif ended:
            lessons.append([line])
            ended = False
        else:
            lessons[-1].append(line)
    return [text for lesson in lessons if (text := tidied("\n".join(lesson)))]


def insight_lines(lessons: Iterable[str]) -> Iterator[str]:
    """The section as it is written, line by line."""
    yield f"{HEADING}\n"
    yield f"{PLACEHOLDER}\n"
    for lesson in lessons:
        first, *others = tidied(lesson).split("\n")
        if first:
            yield f"- {first}\n"
        for line in others:
            yield f"{_INDENT}{line}\n" if line else "\n"


def tidied(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


# The scores of the tasks that came with the original.
_KNOWN = {"val_bpb": Direction.MIN, "train_s": Direction.MIN, "core_metric": Direction.MAX}


def infer_direction(rows: Iterable[ResultRow], score: str) -> Direction:
    """Raises `Misuse` when the rows contradict each other or say nothing."""
    kept: set[Direction] = set()
    missed: set[Direction] = set()
    for row in rows:
        if row.delta:
            better = Direction.MAX if row.delta > 0 else Direction.MIN
            if row.status is TrialStatus.KEEP:
                kept.add(better)
            elif row.status is TrialStatus.DISCARD:
                missed.add(Direction.MIN if better is Direction.MAX else Direction.MAX)
    for ways in (kept, missed):
        if len(ways) == 1:
            return ways.pop()
        if ways:
            break
    if score in _KNOWN and not kept:
        return _KNOWN[score]
    why = (
        "some better scores are higher and some lower" if kept or missed else "nothing was kept or discarded"
    )
    raise Misuse(
        f"the rows do not say whether a higher or a lower {score} is better: {why}",
        hint="say it: direction min or max",
    )


_MOST_BYTES = {BEST: 1024 * 1024, KNOWLEDGE: 8 * 1024 * 1024, CALIBRATION: 1024 * 1024}
_LABEL = re.compile(r"^ *(?:└─ )?exp_\d+ \[[^\n=]*, ([\w.%/-]+)=", re.MULTILINE)
_FACT = re.compile(r"\s*([A-Za-z]\w{0,63})\s*[:=]\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedState:
    """A state directory. `rows` are in the order of the file; each stands for one trial and each number is there once.

    `best` is what best.json says, when that is the last row that was kept; `label` how the score is called for short;
    `calibration` what the log says of how the baseline came about.
    """

    blackboard: Path
    layout: ColumnLayout
    direction: Direction
    label: str
    rows: tuple[ResultRow, ...]
    best: Mapping[str, Any] | None
    lessons: tuple[str, ...]
    calibration: Mapping[str, str]
    remarks: tuple[Remark, ...]

    @property
    def best_row(self) -> ResultRow | None:
        """The row that was kept last, or the baseline."""
        kept = (TrialStatus.BASELINE, TrialStatus.KEEP)
        return next((row for row in reversed(self.rows) if row.status in kept), None)


def read_state(directory: Path, *, direction: Direction | None = None) -> ImportedState:
    """All of a state directory, or of its blackboard.

    A row that cannot be read or repaired is left out and remarked. Raises `Misuse` when there is nothing to import or
    it does not become clear which way the score is better.
    """
    blackboard = find_blackboard(directory)
    remarks = Remarks()
    tree = read_tree(blackboard, remarks)
    layout, rows = _results(blackboard, tree, remarks)
    if not rows:
        first = f": {remarks.made[-1]}" if remarks.made else ""
        raise Misuse(f"there is no row to import in {blackboard / RESULTS}{first}")
    _compare_with_tree(rows, tree, layout, remarks)
    knowledge = _text(blackboard, KNOWLEDGE, remarks)
    shown = _LABEL.search(knowledge)
    imported = ImportedState(
        blackboard=blackboard,
        layout=layout,
        direction=direction or infer_direction(rows, layout.score),
        label=shown[1] if shown else layout.score,
        rows=tuple(rows),
        best=None,
        lessons=tuple(read_insights(knowledge)),
        calibration=_calibration(_text(blackboard, CALIBRATION, remarks, needed=False)),
        remarks=(),
    )
    best = _best(blackboard, imported, remarks)
    return replace(imported, best=best, remarks=tuple(remarks.made))


def _results(
    blackboard: Path, tree: Mapping[int, TreeRow], remarks: Remarks
) -> tuple[ColumnLayout, list[ResultRow]]:
    with open_file(blackboard / RESULTS) as file:
        lines = RecordLines(file)
        header = lines.header()
        layout = read_layout((header or "").split("\t"), str(blackboard / RESULTS))
        rows: list[ResultRow] = []
        lines_of: dict[int, int] = {}
        for record in records(lines, len(layout.columns)):
            try:
                row = _row(record, layout, tree, remarks)
                if row.number in lines_of:
                    raise UnfitRow(f"exp_id {row.exp_id} is on line {lines_of[row.number]} already")
            except UnfitRow as unfit:
                remarks.reject(RESULTS, str(unfit), record.line)
                continue
            expected = rows[-1].number + 1 if rows else 0
            if row.number != expected:
                remarks.warn(
                    RESULTS,
                    f"exp_id {row.exp_id} is where {exp_id(expected)} should be",
                    row.line,
                    row.exp_id,
                )
            lines_of[row.number] = row.line
            rows.append(row)
    _remark_parents(rows, set(lines_of), layout, remarks)
    return layout, rows


def _row(record: TsvRecord, layout: ColumnLayout, tree: Mapping[int, TreeRow], remarks: Remarks) -> ResultRow:
    if record.problem is not None:
        raise UnfitRow(record.problem)
    if not record.broken:
        return read_row(record.cells, layout, record.line, remarks)
    number = read_id(record.cells[0])
    if len(record.cells) == len(layout.columns):
        row = read_row(record.cells, layout, record.line, remarks, raw=record.raw)
        remarks.repair(RESULTS, "its quotes do not match", record.line, row.exp_id)
        return row
    try:
        repaired = repair(record.cells, layout, None if number is None else tree.get(number))
    except Irreparable as reason:
        raise UnfitRow(str(reason)) from reason
    row = read_row(repaired.cells, layout, record.line, remarks, raw=record.raw)
    remarks.repair(RESULTS, repaired.how, record.line, row.exp_id)
    return row


def _remark_parents(rows: list[ResultRow], known: set[int], layout: ColumnLayout, remarks: Remarks) -> None:
    for row in rows:
        named = layout.cell(row.cells, "parent_exp")
        if named and (row.parent is None or row.parent not in known):
            remarks.warn(RESULTS, f"its parent {named[:80]!r} is no row", row.line, row.exp_id)
        elif row.parent is not None and row.parent >= row.number:
            remarks.warn(RESULTS, f"its parent {named} came after it", row.line, row.exp_id)


def _compare_with_tree(
    rows: list[ResultRow], tree: Mapping[int, TreeRow], layout: ColumnLayout, remarks: Remarks
) -> None:
    for row in rows:
        witness = tree.get(row.number)
        if witness is None:
            if tree:
                remarks.warn(RESULTS, "tree.tsv does not have it", row.line, row.exp_id)
            continue
        for column, recorded in (
            ("status", witness.status),
            (layout.score, witness.score),
            ("delta_vs_best", witness.delta),
        ):
            cell = layout.cell(row.cells, column)
            if cell != recorded:
                remarks.warn(
                    RESULTS, f"its {column} is {cell!r}, in tree.tsv {recorded[:80]!r}", row.line, row.exp_id
                )
    for number in sorted(set(tree) - {row.number for row in rows}):
        remarks.warn(RESULTS, "tree.tsv has it, the rows do not", exp_id=exp_id(number))


def _best(blackboard: Path, imported: ImportedState, remarks: Remarks) -> Mapping[str, Any] | None:
    text = _text(blackboard, BEST, remarks)
    if not text:
        return None
    try:
        best = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        remarks.warn(BEST, f"is no JSON: {error}")
        return None
    row = imported.best_row
    named = str(best.get("exp_id")) if isinstance(best, dict) else ""
    if row is None or read_id(named) != row.number:
        last = "nothing was kept" if row is None else f"{row.exp_id} was kept last"
        remarks.warn(BEST, f"names {named[:80]!r} as the best, but {last}")
        return None
    recorded = best.get(imported.layout.score)
    if type(recorded) not in (int, float) or score_text(recorded) != score_text(row.score):
        shown = repr(recorded)[:80]
        remarks.warn(BEST, f"gives {row.exp_id} a {imported.layout.score} of {shown}, its row {row.score}")
        return None
    return dict(best)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _calibration(text: str) -> dict[str, str]:
    facts = (_FACT.fullmatch(line) for line in text.split("\n") if not line.startswith("#"))
    return {fact[1]: fact[2] for fact in facts if fact}


def _text(blackboard: Path, name: str, remarks: Remarks, *, needed: bool = True) -> str:
    """A file that may be absent; what keeps it from being read is remarked."""
    try:
        content = read_bytes(blackboard / name, _MOST_BYTES[name])
    except FileNotFoundError:
        if needed:
            remarks.warn(name, "is absent")
        return ""
    except Misuse as error:
        remarks.warn(name, str(error))
        return ""
    try:
        return content.decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    except UnicodeDecodeError as error:
        remarks.warn(name, f"byte {error.start + 1} is not UTF-8, so it was not read")
        return ""


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
class HistoryReplay:
    """`kept` are the numbers that the rule keeps, in order; `best` is the last of them, or the baseline."""

    kept: tuple[int, ...]
    best: int | None
    best_score: float | None
    mismatches: tuple[Mismatch, ...]

    @property
    def agrees(self) -> bool:
        return not self.mismatches


def replay(imported: ImportedState, policy: str = "strict") -> HistoryReplay:
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
    def __init__(self, imported: ImportedState) -> None:
        self.imported = imported
        self.best: ResultRow | None = None
        self.best_score = 0.0
        self.kept: list[int] = []
        self.mismatches: list[Mismatch] = []

    def run(self) -> HistoryReplay:
        for index, row in enumerate(self.imported.rows):
            for column, expected in self._expected(index, row):
                found = self.imported.layout.cell(row.cells, column)
                if column in self.imported.layout.places and found != expected:
                    self.mismatches.append(Mismatch(row.exp_id, row.line, column, found, expected))
        best = self.best
        self._compare_best(best)
        return HistoryReplay(
            tuple(self.kept),
            None if best is None else best.number,
            None if best is None else self.best_score,
            tuple(self.mismatches),
        )

    def _expected(self, index: int, row: ResultRow) -> Iterator[tuple[str, str]]:
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

    def _snapshot(self, row: ResultRow) -> str:
        """A kept row names its snapshot; one that names none, of a run without snapshots, is fine too."""
        layout = self.imported.layout
        place = f"snapshots/{row.exp_id}_{layout.cell(row.cells, 'domain')}"
        return place if layout.cell(row.cells, "snapshot_path") else ""

    def _keep(self, row: ResultRow, score: float) -> None:
        self.kept.append(row.number)
        self._take(row, score)

    def _take(self, row: ResultRow, score: float) -> None:
        self.best, self.best_score = row, score

    def _compare_best(self, best: ResultRow | None) -> None:
        recorded = self.imported.best_row
        if best is not None and (recorded is None or recorded.number != best.number):
            found = "" if recorded is None else recorded.exp_id
            self.mismatches.append(Mismatch(best.exp_id, best.line, "best", found, best.exp_id))
