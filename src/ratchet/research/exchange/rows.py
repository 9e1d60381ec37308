"""Rows of results.tsv: columns, values, remarks on what is wrong, and repair of broken ones by tree.tsv."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partialmethod
from pathlib import Path

from ratchet.kernel import Misuse, TrialStatus, exp_id
from ratchet.research.adapter import FIXED_COLUMNS, measured_columns
from ratchet.research.exchange.tsv import (
    RESULTS,
    TREE,
    RecordLines,
    clean,
    open_file,
    read_id,
    read_number,
    read_time,
)


class RemarkKind(StrEnum):
    REPAIRED = "repaired"
    REJECTED = "rejected"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Remark:
    """`line` is the first line of the row in `file`, counted from 1; `exp_id` the row, where that is known."""

    kind: RemarkKind
    file: str
    text: str
    line: int | None = None
    exp_id: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        row = "" if self.exp_id is None else f" {self.exp_id}"
        return f"{place}: {self.kind}{row}: {self.text}"


class Remarks:
    """Gathers remarks about one file after the other."""

    def __init__(self) -> None:
        self.made: list[Remark] = []

    def _make(
        self, kind: RemarkKind, file: str, text: str, line: int | None = None, exp_id: str | None = None
    ) -> None:
        self.made.append(Remark(kind, file, text, line, exp_id))

    warn = partialmethod(_make, RemarkKind.WARNING)
    reject = partialmethod(_make, RemarkKind.REJECTED)
    repair = partialmethod(_make, RemarkKind.REPAIRED)


def counts(remarks: Iterable[Remark]) -> dict[str, int]:
    """How many remarks there are of each kind, none left out."""
    found = Counter(remark.kind for remark in remarks)
    return {str(kind): found[kind] for kind in RemarkKind}


_MOST_COLUMNS = 200


@dataclass(frozen=True)
class ColumnLayout:
    """The columns in order, `score` among them."""

    columns: tuple[str, ...]
    score: str

    @cached_property
    def places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    @cached_property
    def measured(self) -> tuple[str, ...]:
        return measured_columns(self.columns, self.score)

    def cell(self, cells: Sequence[str], column: str) -> str:
        """A cell by the name of its column; empty when the file has no such column."""
        place = self.places.get(column)
        return "" if place is None else cells[place]

    def named(self, cells: Sequence[str]) -> dict[str, str]:
        return dict(zip(self.columns, cells, strict=True))


def read_layout(header: Sequence[str], file: str) -> ColumnLayout:
    """Raises `Misuse` for a header that is not one of results.tsv."""
    if len(header) > _MOST_COLUMNS:
        raise Misuse(f"{file} has {len(header)} columns, too many for a results.tsv")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise Misuse(f"{file} has a column twice: {', '.join(twice)[:200]}", hint="rename one of them")
    missing = [name for name in ("exp_id", "status") if name not in header]
    if missing:
        raise Misuse(
            f"the first line of {file} names no column {' and none '.join(missing)}",
            hint="it must be the header of a results.tsv",
        )
    after = header[header.index("status") + 1 :]
    if not after or not after[0] or after[0] in FIXED_COLUMNS:
        raise Misuse(
            f"{file} has no column for the score", hint="the score is the column right after `status`"
        )
    return ColumnLayout(tuple(header), after[0])


class UnfitRow(Exception):
    """Why a row cannot become a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A trial of another system. `cells` are its columns as they were, but for ids, which are written one way.

    `parent` and `compared_to` may name rows that do not exist. `hypothesis` and `notes` are without leaked markup.
    `raw` is the text of a row that had to be repaired.
    """

    number: int
    line: int
    cells: tuple[str, ...]
    status: TrialStatus
    parent: int | None
    compared_to: int | None
    score: float | None
    delta: float | None
    at: int | None
    hypothesis: str
    notes: str
    raw: str | None = None

    @property
    def exp_id(self) -> str:
        return exp_id(self.number)


def read_row(
    cells: Sequence[str], layout: ColumnLayout, line: int, remarks: Remarks, *, raw: str | None = None
) -> ResultRow:
    """The row in these cells. Raises `Unfit`."""
    named = layout.named(cells)
    number = read_id(named["exp_id"])
    if number is None:
        raise UnfitRow(f"{named['exp_id'][:80]!r} is no exp_id")
    status = _status(named["status"])
    for column in ("exp_id", "parent_exp", "baseline_exp"):
        linked = read_id(named.get(column, ""))
        if linked is not None:
            named[column] = exp_id(linked)
    hypothesis, leaked = clean(named.get("hypothesis", ""))
    if hypothesis != named.get("hypothesis", "") and raw is None:
        remarks.repair(RESULTS, "markup that had leaked into the hypothesis is hidden", line, named["exp_id"])
    _remark_numbers(named, layout, line, remarks)
    return ResultRow(
        number=number,
        line=line,
        cells=tuple(named[name] for name in layout.columns),
        status=status,
        parent=read_id(named.get("parent_exp", "")),
        compared_to=read_id(named.get("baseline_exp", "")),
        score=_score(named[layout.score], status, layout.score, line, number, remarks),
        delta=_delta(named.get("delta_vs_best", ""), status),
        at=_time(named, line, remarks),
        hypothesis=hypothesis,
        notes=named.get("notes", "") or leaked,
        raw=raw,
    )


def measurements(row: ResultRow, layout: ColumnLayout) -> Mapping[str, float]:
    """The numbers of a row that are not its score."""
    cells = ((name, read_number(layout.cell(row.cells, name))) for name in layout.measured)
    return {name: number for name, number in cells if number is not None}


# What other systems that write these files call one of ours. The row keeps its own word.
_OTHER_WORDS = {"timeout": TrialStatus.TRAIN_BUDGET_OVERRUN}


def _status(text: str) -> TrialStatus:
    try:
        return _OTHER_WORDS.get(text) or TrialStatus(text)
    except ValueError:
        raise UnfitRow(f"{text[:80]!r} is no status; there are {', '.join(map(str, TrialStatus))}") from None


def _score(
    text: str, status: TrialStatus, column: str, line: int, number: int, remarks: Remarks
) -> float | None:
    score = read_number(text)
    if score is not None:
        return score
    if text and status.valid:
        raise UnfitRow(f"its {column} is {text[:80]!r}, which is no finite number")
    if status in (TrialStatus.BASELINE, TrialStatus.KEEP):
        raise UnfitRow(f"it is {status}, but has no {column}")
    if text:
        remarks.warn(RESULTS, f"its {column} is {text[:80]!r}, no finite number", line, exp_id(number))
    return None


def _delta(text: str, status: TrialStatus) -> float | None:
    delta = read_number(text)
    if text and delta is None and status.valid:
        raise UnfitRow(f"its delta_vs_best is {text[:80]!r}, which is no finite number")
    return delta


def _time(named: Mapping[str, str], line: int, remarks: Remarks) -> int | None:
    text = named.get("timestamp", "")
    at = read_time(text)
    if at is None:
        remarks.warn(RESULTS, f"its timestamp is {text[:80]!r}", line, named["exp_id"])
    return at


def _remark_numbers(named: Mapping[str, str], layout: ColumnLayout, line: int, remarks: Remarks) -> None:
    for name in layout.measured:
        if named[name] and read_number(named[name]) is None:
            remarks.warn(
                RESULTS, f"its {name} is {named[name][:80]!r}, no finite number", line, named["exp_id"]
            )


_COLUMNS = ("exp_id", "parent_exp", "depth", "path", "specialist", "status")
_WIDTH = len(_COLUMNS) + 3


@dataclass(frozen=True, slots=True)
class TreeRow:
    parent: str
    specialist: str
    status: str
    score: str
    delta: str
    hypothesis: str


def read_tree(blackboard: Path, remarks: Remarks) -> dict[int, TreeRow]:
    """The rows by their number; none when the file is absent or is not one. What is odd about a line is remarked."""
    try:
        file = open_file(blackboard / TREE)
    except FileNotFoundError:
        remarks.warn(TREE, "is absent, so that damaged rows cannot be repaired")
        return {}
    except Misuse as error:
        remarks.warn(TREE, str(error))
        return {}
    with file:
        return _rows(RecordLines(file), remarks)


def _rows(lines: RecordLines, remarks: Remarks) -> dict[int, TreeRow]:
    header = lines.header()
    if header is None or tuple(header.split("\t")[: len(_COLUMNS)]) != _COLUMNS:
        remarks.warn(TREE, "does not begin with the header of a tree.tsv, so it was not read", 1)
        return {}
    found: dict[int, TreeRow] = {}
    while (line := lines.next()) is not None:
        cells = line.text.split("\t", _WIDTH - 1)
        number = read_id(cells[0])
        if number is None or len(cells) < _WIDTH or number in found:
            if line.text or line.problem:
                remarks.warn(TREE, line.problem or "is not a row, or one that was there before", line.number)
            continue
        _, parent, _, _, specialist, status, score, delta, hypothesis = cells
        found[number] = TreeRow(parent, specialist, status, score, delta, hypothesis)
    return found


_JOB = re.compile(r"[\w.]+-[\w.]*-\d{4}", re.ASCII)
_SNAPSHOT = re.compile(r"snapshots/.*", re.DOTALL)


class Irreparable(Exception):
    """Why a row cannot be repaired."""


@dataclass(frozen=True, slots=True)
class Repaired:
    cells: tuple[str, ...]
    how: str


def repair(cells: Sequence[str], layout: ColumnLayout, witness: TreeRow | None) -> Repaired:
    """All cells of a row of which only those before the hypothesis came out. Raises `Irreparable`."""
    place = layout.places.get("hypothesis")
    width = f"it has {len(cells)} columns, the header {len(layout.columns)}"
    if place is None or not place < len(cells) < len(layout.columns):
        raise Irreparable(width)
    if witness is None:
        raise Irreparable(f"{width}, and tree.tsv does not have the row")
    text = "\t".join(cells[place:])
    end = _end_of(witness.hypothesis, text)
    if end is None:
        raise Irreparable(f"{width}, and its hypothesis is another than in tree.tsv")
    whole = dict.fromkeys(layout.columns, "") | dict(zip(layout.columns, cells[:place], strict=False))
    whole |= {
        "hypothesis": text[:end],
        "status": witness.status,
        layout.score: witness.score,
        "delta_vs_best": witness.delta,
    }
    rest = text[end:]
    if not rest.split():
        return _repaired(whole, layout, "the columns after the hypothesis are gone; taken from tree.tsv")
    after = layout.columns[place + 1 :]
    aligned = _aligned(rest, after, layout, witness)
    if aligned is not None:
        return _repaired(whole | aligned, layout, "columns that had run together were told apart by tree.tsv")
    found, lost = _tokens(rest, after, layout, witness)
    how = "columns that had run together were told apart by tree.tsv"
    return _repaired(whole | found, layout, f"{how}; nothing tells the values of {lost}" if lost else how)


def _repaired(whole: dict[str, str], layout: ColumnLayout, how: str) -> Repaired:
    return Repaired(tuple(whole[name] for name in layout.columns), how)


def _end_of(hypothesis: str, text: str) -> int | None:
    """Where `text` continues after the hypothesis, whatever became of the spaces in either; nothing if it differs."""
    at = 0
    for character in hypothesis:
        if character.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != character:
            return None
        at += 1
    return at


def _aligned(
    rest: str, after: Sequence[str], layout: ColumnLayout, witness: TreeRow
) -> dict[str, str] | None:
    """One space for each tab, or still a tab: the columns in order, if all that is known of them fits."""
    parts = rest[1:].split(rest[0], len(after) - 1)
    if len(parts) != len(after):
        return None
    found = dict(zip(after, parts, strict=True))
    known = {"status": witness.status, layout.score: witness.score, "delta_vs_best": witness.delta}
    numbers = (found[name] for name in layout.measured if name in found)
    fits = (
        all(found.get(name, value) == value for name, value in known.items())
        and all(text == "" or read_number(text) is not None for text in numbers)
        and (_JOB.fullmatch(found.get("job_name", "")) is not None or not found.get("job_name"))
        and (not found.get("snapshot_path") or _SNAPSHOT.fullmatch(found["snapshot_path"]) is not None)
    )
    return found if fits else None


def _tokens(
    rest: str, after: Sequence[str], layout: ColumnLayout, witness: TreeRow
) -> tuple[dict[str, str], str]:
    """Any number of spaces for any number of tabs: what can be told for certain, and the columns that cannot."""
    tokens = rest.split()
    status = _status_place(tokens, witness)
    found = {"expected_delta": " ".join(tokens[:status])} if "expected_delta" in after else {}
    numeric = [
        name for name in after if name == layout.score or name in layout.measured or name == "delta_vs_best"
    ]
    certain = list(_witnessed(layout, witness))
    present = [name for name in numeric if name in layout.measured or name in certain]
    tokens = tokens[status + 1 :]
    count = next(
        (at for at, token in enumerate(tokens[: len(present)]) if read_number(token) is None),
        min(len(tokens), len(present)),
    )
    numbers, tokens = tokens[:count], tokens[count:]
    certain = [name for name in present if name in certain]
    names = present if count == len(present) else certain if count == len(certain) else []
    values = dict(zip(names, numbers, strict=True)) if names else {}
    agrees = all(values.get(name, cell) == cell for name, cell in _witnessed(layout, witness).items())
    if not agrees:
        values, names = {}, []
    lost = "" if names or not numbers else ", ".join(name for name in present if name not in certain)
    found |= values
    for column, shape in (("job_name", _JOB), ("snapshot_path", _SNAPSHOT)):
        if column in after and tokens and shape.fullmatch(tokens[0]):
            found[column] = tokens.pop(0)
    if "notes" in after:
        found["notes"] = " ".join(tokens)
    return found, lost


def _status_place(tokens: Sequence[str], witness: TreeRow) -> int:
    """Where the status stands among the tokens: followed by the score, if there is one. Raises `Irreparable`."""
    for at, token in enumerate(tokens):
        if token == witness.status and (not witness.score or tokens[at + 1 : at + 2] == [witness.score]):
            return at
    raise Irreparable(
        f"what is left of it does not agree with tree.tsv, which says {witness.status} {witness.score}".rstrip()
    )


def _witnessed(layout: ColumnLayout, witness: TreeRow) -> dict[str, str]:
    cells = {layout.score: witness.score, "delta_vs_best": witness.delta}
    return {name: text for name, text in cells.items() if text}
