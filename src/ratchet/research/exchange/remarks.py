"""What is said about a state directory while it is read: every row that was mended, left out or looks odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


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

    def warn(self, file: str, text: str, line: int | None = None, exp_id: str | None = None) -> None:
        self.made.append(Remark(RemarkKind.WARNING, file, text, line, exp_id))

    def reject(self, file: str, text: str, line: int | None = None, exp_id: str | None = None) -> None:
        self.made.append(Remark(RemarkKind.REJECTED, file, text, line, exp_id))

    def repair(self, file: str, text: str, line: int | None = None, exp_id: str | None = None) -> None:
        self.made.append(Remark(RemarkKind.REPAIRED, file, text, line, exp_id))


def counts(remarks: Iterable[Remark]) -> dict[str, int]:
    """How many remarks there are of each kind, none left out."""
    found = Counter(remark.kind for remark in remarks)
    return {str(kind): found[kind] for kind in RemarkKind}
