"""How much work a run does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    repeats: int
    jobs: int
    # A process forked for each job is some ten times slower, so fewer tell as much.
    forked_jobs: int
    stamps: int
    single_events: int
    batches: int
    steps: int
    events: tuple[int, int]
    rows: tuple[int, int]
    reads: int
    starts: int
    idle_seconds: float
    attempts: int


FULL = Scale(
    repeats=3,
    jobs=1000,
    forked_jobs=200,
    stamps=60,
    single_events=300,
    batches=10,
    steps=200,
    events=(1_000, 1_000_000),
    rows=(1_000, 100_000),
    reads=200,
    starts=15,
    idle_seconds=20,
    attempts=10_000,
)
QUICK = Scale(
    repeats=1,
    jobs=60,
    forked_jobs=20,
    stamps=12,
    single_events=50,
    batches=3,
    steps=30,
    events=(1_000, 100_000),
    rows=(1_000, 20_000),
    reads=8,
    starts=3,
    idle_seconds=5,
    attempts=400,
)
