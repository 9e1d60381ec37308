"""The task that `ratchet research new` makes, for things to go wrong with."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ratchet.research.adapter import EvaluatorProgram, Program, TaskAdapter
from ratchet.research.checking.bench import Bench, Ended, open_bench
from ratchet.research.tasks import read_task, scaffold
from ratchet.sandbox import Bounds

NAME = "sine"
_SEED = 0
_BOUNDS = Bounds(
    wall_seconds=2.0, memory_bytes=96 * 1024**2, processes=16, output_bytes=64 * 1024, file_bytes=1024**2
)
_ONE = ("sh", "-c", "echo '{\"error\": 1}'")


@dataclass(frozen=True, slots=True)
class Scene:
    """A bench with that task. Each fault gets a copy of the task's facts, and programs of its own."""

    bench: Bench
    place: Path

    def with_evaluator(
        self, source: str, *, command: bool = False, kind: type[TaskAdapter] = TaskAdapter
    ) -> Bench:
        """The task with another evaluator. As a command it is run after a trial that does nothing."""
        directory = self.place / "evaluators" / str(len(list(self.place.glob("evaluators/*"))))
        directory.mkdir(parents=True)
        (directory / "score.py").write_text(source)
        task = kind(**{each.name: getattr(self.bench.task, each.name) for each in fields(TaskAdapter)})
        # Not in the pinned copy, which stays what it is.
        task.evaluator_dir = str(directory)
        task.evaluator = replace(task.evaluator, bounds=_BOUNDS)
        if command:
            task.evaluator = EvaluatorProgram(argv=("{python}", "-I", "-S", "score.py"), bounds=_BOUNDS)
            task.trial = Program(argv=("true",), bounds=_BOUNDS)
        return self.bench.with_task(task)

    def with_trial(self, program: str, *, seconds: float = _BOUNDS.wall_seconds) -> Bench:
        """The task with a shell's program in the place of the recipe. Whatever ends well is scored with 1."""
        task = copy.copy(self.bench.task)
        task.trial = Program(argv=("sh", "-c", program), bounds=replace(_BOUNDS, wall_seconds=seconds))
        task.evaluator = EvaluatorProgram(argv=_ONE, bounds=_BOUNDS)
        return self.bench.with_task(task)


@asynccontextmanager
async def open_scene(place: Path) -> AsyncIterator[Scene]:
    """A new one below `place`, which exists and is empty."""
    folder = scaffold(NAME, place)
    async with open_bench(read_task(folder), place) as bench:
        yield Scene(bench, place)


async def measured(bench: Bench) -> Ended:
    return await bench.attempt(bench.base, seed=_SEED)
