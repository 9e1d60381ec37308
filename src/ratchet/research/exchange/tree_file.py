"""tree.tsv as somebody else wrote it: the second witness of every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.research.exchange.files import TREE, open_file
from ratchet.research.exchange.numbers import read_id
from ratchet.research.exchange.remarks import Remarks
from ratchet.research.exchange.tsv import Lines

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
        return _rows(Lines(file), remarks)


def _rows(lines: Lines, remarks: Remarks) -> dict[int, TreeRow]:
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
