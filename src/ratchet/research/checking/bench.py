"""A task on a bench of its own: pinned, committed and measured as a run does it, in a place that is thrown away."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.campaign import research_directory, task_directory
from ratchet.research.measurement import Measurement, Meter, Unmeasured
from ratchet.research.measuring import TaskMeter
from ratchet.research.tasks import initial_files, pin_task, task_hash
from ratchet.workspaces import Repository, memory_directory

_RUN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one commit fared: a score, or the status and the reason of having none."""

    status: TrialStatus | None = None
    score: float | None = None
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> str:
        return f"{self.status}: {self.reason}" if self.status is not None else f"score {self.score!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """`task` is the pinned copy and `origin` the folder that it was copied from. `base` is the baseline's commit."""

    task: TaskAdapter
    origin: Path
    home: Path
    repository: Repository
    meter: Meter
    base: str

    @property
    def repository_directory(self) -> Path:
        return research_directory(self.home, _RUN) / "repo.git"

    async def commit(self, files: Mapping[str, bytes | None]) -> str:
        return await asyncio.to_thread(
            self.repository.commit_files, files, parent=self.base, message="candidate"
        )

    async def measure(self, *, seed: int, held_out: bool = False) -> Measurement:
        """The baseline as it is. Raises `Unmeasured`."""
        return await self.meter.measure(self.base, seed=seed, held_out=held_out)

    async def attempt(self, commit: str, *, seed: int) -> Ended:
        """What would become of a trial of `commit`."""
        try:
            await self.meter.preflight(commit, self.base)
            measured = await self.meter.measure(commit, seed=seed)
        except Unmeasured as failed:
            return Ended(status=failed.status, score=failed.score, reason=failed.reason, facts=failed.facts)
        return Ended(score=measured.score, facts=measured.facts)

    def with_task(self, task: TaskAdapter) -> Bench:
        """The same place with other facts about the task, such as shorter limits."""
        return Bench(
            task=task,
            origin=self.origin,
            home=self.home,
            repository=self.repository,
            meter=TaskMeter(task, self.repository, self.home, origin=self.origin),
            base=self.base,
        )


@contextmanager
def new_place() -> Iterator[Path]:
    """A directory that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="ratchet-check-") as directory:
        yield Path(directory).resolve()


@asynccontextmanager
async def open_bench(task: TaskAdapter, place: Path) -> AsyncIterator[Bench]:
    """A bench below `place`, which is empty. Raises `Misuse` for a task that cannot be pinned or measured."""
    home = place / "home"
    pinned = await asyncio.to_thread(pin_task, task, task_directory(home, task_hash(task)))
    path = research_directory(home, _RUN) / "repo.git"
    repository = await asyncio.to_thread(_repository, path)
    try:
        files = initial_files(pinned)
        base = await asyncio.to_thread(
            repository.commit_files, files, parent=None, message=f"Baseline of {task.name}"
        )
        yield Bench(
            task=pinned,
            origin=task.root,
            home=home,
            repository=repository,
            meter=TaskMeter(pinned, repository, home, origin=task.root),
            base=base,
        )
    finally:
        await asyncio.to_thread(repository.close)


def _repository(path: Path) -> Repository:
    path.parent.mkdir(parents=True)
    return Repository.create(path, workspaces=memory_directory(path))
