"""Numbers from several tries: the middle one, how far they spread, and what a process used."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Spread(NamedTuple):
    """The middle of several tries, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int = 0) -> str:
        if self.low == self.high:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ratio(value: float, base: float) -> str:
    return "–" if not base else f"{value / base:.2f}×"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of the children it has waited for. Counted in ticks of 10 ms; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def cpu_of_children(pid: int) -> float:
    """CPU time of the living children of a process, such as the backends of a PostgreSQL server."""
    total = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            total += cpu_seconds(int(entry.name))
    return total
