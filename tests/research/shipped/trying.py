"""Trying shipped tasks that are commands: measuring with the real meter, scoring what was left, searching."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ratchet.research
from ratchet.engines import Request
from ratchet.engines.search import SearchEngine
from ratchet.kernel import Direction
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.result import Measurement, Unmeasured
from ratchet.research.tasks import initial_files, read_task
from ratchet.sandbox import Node, Policy, run
from ratchet.workspaces import Repository

SHIPPED = Path(ratchet.research.__file__).parent / "shipped"


def shipped(name: str, variant: str | None = None) -> TaskAdapter:
    return read_task(SHIPPED / name, variant)


class EvaluatorBroke(Exception):
    """The evaluator gave no answer."""


@dataclass(frozen=True)
class Laboratory:
    """One task with a repository for its candidates, below `place`."""

    task: TaskAdapter
    place: Path

    def measure(
        self, changed: Mapping[str, str] | None = None, *, seed: int = 0, held_out: bool = False
    ) -> Measurement:
        """One measurement of the recipe as it is shipped, with other text in some of its files. Raises `Unmeasured`."""
        files = {
            **initial_files(self.task),
            **{path: text.encode() for path, text in (changed or {}).items()},
        }
        path = self.place / "repo.git"
        with Repository.open(path) if path.exists() else Repository.create(path) as repository:
            commit = repository.commit_files(files, parent=None, message="candidate")
            meter = TaskMeter(self.task, repository, self.place)
            return asyncio.run(_measured(meter, commit, seed, held_out))

    def score(self, left: Iterable[Path], *, seed: int = 0, held_out: bool = False) -> dict[str, Any]:
        """What the evaluator says of directories that were left, one for each process of a measurement."""
        trials = [{"out": str(each), "wall_ms": 100.0, "cpu_ms": 90.0, "peak_bytes": 1} for each in left]
        asked = {"seed": seed, "held_out": held_out, "trial": trials[0], "trials": trials}
        answer: dict[str, Any] = self._call(
            self.task.evaluator.function, asked, [Path(each["out"]) for each in trials]
        )
        return answer

    def question(self, *, seed: int = 0, held_out: bool = False) -> Any:
        return self._call(self.task.evaluator.prepare, {"seed": seed, "held_out": held_out}, [])

    def search(self, trials: int) -> tuple[float, float, set[str]]:
        """The score of the baseline, the best of so many proposals, and the names of the files that they changed."""
        baseline = best = self.measure().score
        better = min if self.task.direction is Direction.MIN else max
        shipped_files = {path: content.decode() for path, content in initial_files(self.task).items()}
        engine, resume, feedback = SearchEngine(), None, []
        changed: set[str] = set()
        workspace = self.place / "workspace"
        for _ in range(trials):
            _write(workspace, shipped_files)
            data = {"feedback": feedback, "goal": str(self.task.direction)}
            session = asyncio.run(engine.propose(Request("", workspace=workspace, resume=resume, data=data)))
            proposed = {path: (workspace / path).read_text() for path in shipped_files}
            changed |= {path for path, text in proposed.items() if text != shipped_files[path]}
            score = self._tried(proposed)
            resume, feedback = session.resume, [{"proposal": session.data["proposal"], "score": score}]
            best = best if score is None else better(best, score)
        return baseline, best, changed

    def _tried(self, changed: Mapping[str, str]) -> float | None:
        try:
            return self.measure(changed).score
        except Unmeasured:
            return None

    def _call(self, function: str, given: dict[str, Any], shown: Sequence[Path]) -> Any:
        directory = self.task.root / self.task.evaluator_dir
        program = self.task.evaluator
        node = Node(directory / program.file, function, program.modules)
        policy = Policy(readable=(directory, *shown))
        finished = asyncio.run(
            run(node, stdin=json.dumps(given).encode(), bounds=program.bounds, policy=policy)
        )
        if not finished.ok:
            raise EvaluatorBroke(finished.problem)
        return finished.value


async def _measured(meter: TaskMeter, commit: str, seed: int, held_out: bool) -> Measurement:
    await meter.preflight(commit, commit)
    return await meter.measure(commit, seed=seed, held_out=held_out)


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
