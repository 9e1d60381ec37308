"""How much work a run does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
    # Short, long and longest history of a research run.
    trials: tuple[int, int, int]
    reads: int
    starts: int
    idle_seconds: float
    attempts: int
    # A DAG of steps that do nothing: how many side by side and one after the other, in the usual and in the long one.
    dag: tuple[int, int]
    long_dag: tuple[int, int]
    # Iterations of the other research harnesses.
    openevolve: int
    shinka: int
    # Runs of each strategy and peer on each problem, and model calls of a run.
    strategy_seeds: int
    strategy_calls: int
    # Simulated trials at once, few and many, and how many trials a slot makes.
    slots: tuple[int, int]
    rounds: int
    # Keeps the runs that have ended; without it, they are gone when the benchmark is interrupted.
    strategy_runs: Path | None = None


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
    trials=(100, 10_000, 100_000),
    reads=200,
    starts=15,
    idle_seconds=20,
    attempts=10_000,
    dag=(10, 100),
    long_dag=(10, 1_000),
    openevolve=1_000,
    shinka=50,
    strategy_seeds=10,
    strategy_calls=200,
    slots=(50, 1_000),
    rounds=3,
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
    trials=(100, 3_000, 10_000),
    reads=8,
    starts=3,
    idle_seconds=5,
    attempts=400,
    dag=(10, 10),
    long_dag=(10, 100),
    openevolve=100,
    shinka=20,
    strategy_seeds=2,
    strategy_calls=60,
    slots=(10, 100),
    rounds=4,
)
