"""One row of results.tsv as values. What must not be wrong is refused; the rest is remarked and kept as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratchet.kernel import TrialStatus, exp_id
from ratchet.research.exchange.files import RESULTS
from ratchet.research.exchange.layout import Layout
from ratchet.research.exchange.markup import clean
from ratchet.research.exchange.numbers import read_id, read_number, read_time
from ratchet.research.exchange.remarks import Remarks


class Unfit(Exception):
    """Why a row cannot become a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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
    cells: Sequence[str], layout: Layout, line: int, remarks: Remarks, *, raw: str | None = None
) -> Row:
    """The row in these cells. Raises `Unfit`."""
    named = layout.named(cells)
    number = read_id(named["exp_id"])
    if number is None:
        raise Unfit(f"{named['exp_id'][:80]!r} is no exp_id")
    status = _status(named["status"])
    for column in ("exp_id", "parent_exp", "baseline_exp"):
        linked = read_id(named.get(column, ""))
        if linked is not None:
            named[column] = exp_id(linked)
    hypothesis, leaked = clean(named.get("hypothesis", ""))
    if hypothesis != named.get("hypothesis", "") and raw is None:
        remarks.repair(RESULTS, "markup that had leaked into the hypothesis is hidden", line, named["exp_id"])
    _remark_numbers(named, layout, line, remarks)
    return Row(
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


def measurements(row: Row, layout: Layout) -> Mapping[str, float]:
    """The numbers of a row that are not its score."""
    cells = ((name, read_number(layout.cell(row.cells, name))) for name in layout.measured)
    return {name: number for name, number in cells if number is not None}


def _status(text: str) -> TrialStatus:
    try:
        return TrialStatus(text)
    except ValueError:
        raise Unfit(f"{text[:80]!r} is no status; there are {', '.join(map(str, TrialStatus))}") from None


def _score(
    text: str, status: TrialStatus, column: str, line: int, number: int, remarks: Remarks
) -> float | None:
    score = read_number(text)
    if score is not None:
        return score
    if text and status.valid:
        raise Unfit(f"its {column} is {text[:80]!r}, which is no finite number")
    if status in (TrialStatus.BASELINE, TrialStatus.KEEP):
        raise Unfit(f"it is {status}, but has no {column}")
    if text:
        remarks.warn(RESULTS, f"its {column} is {text[:80]!r}, no finite number", line, exp_id(number))
    return None


def _delta(text: str, status: TrialStatus) -> float | None:
    delta = read_number(text)
    if text and delta is None and status.valid:
        raise Unfit(f"its delta_vs_best is {text[:80]!r}, which is no finite number")
    return delta


def _time(named: Mapping[str, str], line: int, remarks: Remarks) -> int | None:
    text = named.get("timestamp", "")
    at = read_time(text)
    if at is None:
        remarks.warn(RESULTS, f"its timestamp is {text[:80]!r}", line, named["exp_id"])
    return at


def _remark_numbers(named: Mapping[str, str], layout: Layout, line: int, remarks: Remarks) -> None:
    for name in layout.measured:
        if named[name] and read_number(named[name]) is None:
            remarks.warn(
                RESULTS, f"its {name} is {named[name][:80]!r}, no finite number", line, named["exp_id"]
            )
