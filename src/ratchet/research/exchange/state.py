"""Reading a state directory of the original: all that it says, with every doubt remarked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.kernel import Direction, Misuse, TrialStatus, exp_id
from ratchet.research.exchange.direction import infer_direction
from ratchet.research.exchange.files import (
    BEST,
    CALIBRATION,
    KNOWLEDGE,
    RESULTS,
    find_blackboard,
    open_file,
    read_bytes,
)
from ratchet.research.exchange.insights import read_insights
from ratchet.research.exchange.layout import Layout, read_layout
from ratchet.research.exchange.numbers import read_id, score_text
from ratchet.research.exchange.remarks import Remark, Remarks
from ratchet.research.exchange.repair import Irreparable, repair
from ratchet.research.exchange.rows import Row, Unfit, read_row
from ratchet.research.exchange.tree_file import TreeRow, read_tree
from ratchet.research.exchange.tsv import Lines, Record, records

_MOST_BYTES = {BEST: 1024 * 1024, KNOWLEDGE: 8 * 1024 * 1024, CALIBRATION: 1024 * 1024}
_LABEL = re.compile(r"^ *(?:└─ )?exp_\d+ \[[^\n=]*, ([\w.%/-]+)=", re.MULTILINE)
_FACT = re.compile(r"\s*([A-Za-z]\w{0,63})\s*[:=]\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A state directory. `rows` are in the order of the file; each stands for one trial and each number is there once.

    `best` is what best.json says, when that is the last row that was kept; `label` how the score is called for short;
    `calibration` what the log says of how the baseline came about.
    """

    blackboard: Path
    layout: Layout
    direction: Direction
    label: str
    rows: tuple[Row, ...]
    best: Mapping[str, Any] | None
    lessons: tuple[str, ...]
    calibration: Mapping[str, str]
    remarks: tuple[Remark, ...]

    @property
    def best_row(self) -> Row | None:
        """The row that was kept last, or the baseline."""
        kept = (TrialStatus.BASELINE, TrialStatus.KEEP)
        return next((row for row in reversed(self.rows) if row.status in kept), None)


def read_state(directory: Path, *, direction: Direction | None = None) -> Imported:
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
    imported = Imported(
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


def _results(blackboard: Path, tree: Mapping[int, TreeRow], remarks: Remarks) -> tuple[Layout, list[Row]]:
    with open_file(blackboard / RESULTS) as file:
        lines = Lines(file)
        header = lines.header()
        layout = read_layout((header or "").split("\t"), str(blackboard / RESULTS))
        rows: list[Row] = []
        lines_of: dict[int, int] = {}
        for record in records(lines, len(layout.columns)):
            try:
                row = _row(record, layout, tree, remarks)
                if row.number in lines_of:
                    raise Unfit(f"exp_id {row.exp_id} is on line {lines_of[row.number]} already")
            except Unfit as unfit:
                remarks.reject(RESULTS, str(unfit), record.line)
                continue
            expected = rows[-1].number + 1 if rows else 0
            if row.number != expected:
                remarks.warn(
                    RESULTS,
                    f"exp_id {row.exp_id} stands where {exp_id(expected)} should",
                    row.line,
                    row.exp_id,
                )
            lines_of[row.number] = row.line
            rows.append(row)
    _remark_parents(rows, set(lines_of), layout, remarks)
    return layout, rows


def _row(record: Record, layout: Layout, tree: Mapping[int, TreeRow], remarks: Remarks) -> Row:
    if record.problem is not None:
        raise Unfit(record.problem)
    if not record.broken:
        return read_row(record.cells, layout, record.line, remarks)
    number = read_id(record.cells[0])
    if len(record.cells) == len(layout.columns):
        row = read_row(record.cells, layout, record.line, remarks, raw=record.raw)
        remarks.repair(RESULTS, "its quotes do not match", record.line, row.exp_id)
        return row
    try:
        mended = repair(record.cells, layout, None if number is None else tree.get(number))
    except Irreparable as reason:
        raise Unfit(str(reason)) from reason
    row = read_row(mended.cells, layout, record.line, remarks, raw=record.raw)
    remarks.repair(RESULTS, mended.how, record.line, row.exp_id)
    return row


def _remark_parents(rows: list[Row], known: set[int], layout: Layout, remarks: Remarks) -> None:
    for row in rows:
        named = layout.cell(row.cells, "parent_exp")
        if named and (row.parent is None or row.parent not in known):
            remarks.warn(RESULTS, f"its parent {named[:80]!r} is no row", row.line, row.exp_id)
        elif row.parent is not None and row.parent >= row.number:
            remarks.warn(RESULTS, f"its parent {named} came after it", row.line, row.exp_id)


def _compare_with_tree(
    rows: list[Row], tree: Mapping[int, TreeRow], layout: Layout, remarks: Remarks
) -> None:
    for row in rows:
        witness = tree.get(row.number)
        if witness is None:
            if tree:
                remarks.warn(RESULTS, "tree.tsv does not have it", row.line, row.exp_id)
            continue
        for column, told in (
            ("status", witness.status),
            (layout.score, witness.score),
            ("delta_vs_best", witness.delta),
        ):
            cell = layout.cell(row.cells, column)
            if cell != told:
                remarks.warn(
                    RESULTS, f"its {column} is {cell!r}, in tree.tsv {told[:80]!r}", row.line, row.exp_id
                )
    for number in sorted(set(tree) - {row.number for row in rows}):
        remarks.warn(RESULTS, "tree.tsv has it, the rows do not", exp_id=exp_id(number))


def _best(blackboard: Path, imported: Imported, remarks: Remarks) -> Mapping[str, Any] | None:
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
    told = best.get(imported.layout.score)
    if type(told) not in (int, float) or score_text(told) != score_text(row.score):
        shown = repr(told)[:80]
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
