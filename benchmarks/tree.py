"""What a process and everything it started use, seen from outside while it runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.sample import cpu_seconds

# To look takes milliseconds, from the same cores as what is measured.
_EVERY_SECONDS = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    at: float
    """On the steady clock, which is the same in every process."""
    cpu_seconds: float
    rss_bytes: int


class TreeWatch:
    """Looks at a tree of processes four times a second, from a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="tree-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def peak_mb(self) -> float:
        """Memory of all the processes together at their highest; what two of them share is counted twice."""
        return max((sample.rss_bytes for sample in self._samples), default=0) / 2**20

    def cpu_between(self, begin: float, end: float) -> float:
        """Seconds of CPU from one moment of the steady clock to another."""
        return cpu_at(self._samples, end) - cpu_at(self._samples, begin)

    def _look(self) -> None:
        over = False
        while not over:
            # Once more at the end, so that the samples cover all that was watched.
            over = self._over.wait(_EVERY_SECONDS)
            self._samples.append(self._sample())

    def _sample(self) -> Sample:
        """Parents first: a child that is waited for meanwhile is missed this time, and never counted twice."""
        processes = _tree(self._pid)
        cpu, rss = sum(map(cpu_seconds, processes)), sum(map(_rss_bytes, processes))
        known = self._samples[-1].cpu_seconds if self._samples else 0.0
        return Sample(time.monotonic(), max(cpu, known), rss)


def cpu_at(samples: list[Sample], at: float) -> float:
    """CPU seconds used until `at`, on a straight line between the samples around it.

    Raises `ValueError` for a moment that nobody watched.
    """
    for left, right in itertools.pairwise(samples):
        if left.at <= at <= right.at:
            share = (at - left.at) / (right.at - left.at)
            return left.cpu_seconds + share * (right.cpu_seconds - left.cpu_seconds)
    raise ValueError(f"{at} is not within the {len(samples)} samples")


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        # Any of them may end while it is looked at.
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208 - as cheap as it can be
                found += map(int, Path(f"/proc/{parent}/task/{thread}/children").read_text().split())
    return found


def _rss_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * _PAGE
