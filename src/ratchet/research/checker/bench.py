"""A task on a bench of its own, pinned, committed and measured as in a run, and the result of one check."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.judges.comparison import spread
from ratchet.kernel import Direction, TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.campaign import research_directory, task_directory
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.measurement.result import Measurement, Meter, Unmeasured
from ratchet.research.tasks import initial_files, pin_task, task_hash
from ratchet.workspaces import Repository, memory_directory


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class CheckPart(StrEnum):
    """What was looked at: the task itself, what it does to a hostile recipe, or Ratchet with something broken."""

    TASK = "task"
    ATTACK = "attack"
    EVALUATOR = "evaluator"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """One thing that was looked at. `expected` and `seen` are for attacks and faults."""

    part: CheckPart
    what: str
    grade: Grade
    detail: str
    hint: str = ""
    expected: str = ""
    seen: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def check_of(
    part: CheckPart,
    what: str,
    expected: str,
    seen: str,
    problems: Sequence[str],
    watch: Stopwatch,
    *,
    hint: str = "this is a fault of Ratchet or of this machine: see `ratchet doctor`",
) -> TaskCheck:
    """What came of an attack or a fault; `hint` is given where there is a problem."""
    return TaskCheck(
        part=part,
        what=what,
        grade=Grade.FAILED if problems else Grade.OK,
        detail="; ".join(problems) or seen,
        hint=hint if problems else "",
        expected=expected,
        seen=seen,
        seconds=watch.seconds,
    )


OnCheck = Callable[[TaskCheck], None]
"""Called with each check as soon as it is done."""


class Stopwatch:
    """Counts the seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


_REPEATS = 3
_SPREADS = 6.0


@dataclass(slots=True)
class Honesty:
    """The scores of the baseline with one seed. They grow while it is measured again and again."""

    bench: Bench
    seed: int
    scores: list[float] = field(default_factory=list)

    async def learn(self) -> None:
        """Raises `Unmeasured`."""
        for _ in range(_REPEATS):
            await self.again()

    async def again(self) -> float:
        score = (await self.bench.measure(seed=self.seed)).score
        self.scores.append(score)
        return score

    def is_beaten_by(self, score: float) -> bool:
        """Whether a score is better than any that the baseline could have."""
        direction = self.bench.task.direction
        best = max(self.scores) if direction is Direction.MAX else min(self.scores)
        return direction.gain(score, best) > self._margin(self.scores)

    async def still_holds(self) -> str | None:
        """Measure once more. What is wrong if it is not as before; chance may explain two strange scores, not three."""
        known = list(self.scores)
        for _ in range(_REPEATS):
            score = await self.again()
            if min(known) - self._margin(known) <= score <= max(known) + self._margin(known):
                return None
        return f"the honest recipe scored {known[-1]!r} before and {score!r} after it"

    @staticmethod
    def _margin(scores: list[float]) -> float:
        return _SPREADS * spread(tuple(scores))[1]


class Observation(NamedTuple):
    detail: str
    grade: Grade = Grade.OK
    hint: str = ""


@dataclass(slots=True)
class TaskCase:
    """`samples` are measurements of the baseline, the first of them with the first seed."""

    bench: Bench
    samples: list[Measurement] = field(default_factory=list)


Look = Callable[[TaskCase], Awaitable[Observation]]


def warned(detail: str, hint: str) -> Observation:
    return Observation(detail, Grade.WARNING, hint)


def failed(detail: str, hint: str) -> Observation:
    return Observation(detail, Grade.FAILED, hint)


_RUN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """How one commit fared: a score, or the status and the reason of having none."""

    status: TrialStatus | None = None
    score: float | None = None
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
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

    async def attempt(self, commit: str, *, seed: int) -> TrialEnd:
        """What would become of a trial of `commit`."""
        try:
            await self.meter.preflight(commit, self.base)
            measured = await self.meter.measure(commit, seed=seed)
        except Unmeasured as failed:
            return TrialEnd(
                status=failed.status, score=failed.score, reason=failed.reason, facts=failed.facts
            )
        return TrialEnd(score=measured.score, facts=measured.facts)

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
    return Repository.create(path, workspaces=memory_directory(path), bounds=CANDIDATE_BOUNDS)


# Less than this says nothing: an empty `__init__.py` is the same everywhere.
_LEAST_BYTES = 8


def file_hashes(task: TaskAdapter) -> tuple[dict[str, str], dict[str, str]]:
    """What must not be known, by its hash, and what everybody may read, by its place."""
    inputs = {} if task.inputs is None else dict(_hashes(task.root / task.inputs))
    secret = {
        digest: f"{task.evaluator_dir}/{name}" for name, digest in _hashes(task.root / task.evaluator_dir)
    }
    if task.held_out_inputs is not None:
        held = dict(_hashes(task.root / task.held_out_inputs))
        # What both splits have under one name is no secret of either.
        secret |= {
            digest: f"{task.held_out_inputs}/{name}"
            for name, digest in held.items()
            if inputs.get(name) != digest
        }
    committed = {place: hashlib.sha256(content).hexdigest() for place, content in initial_files(task).items()}
    return secret, {**{f"{task.inputs}/{name}": digest for name, digest in inputs.items()}, **committed}


def _hashes(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size >= _LEAST_BYTES:
            with path.open("rb") as file:
                yield str(path.relative_to(directory)), hashlib.file_digest(file, "sha256").hexdigest()


def secrets_of(task: TaskAdapter) -> dict[str, str]:
    """The hashes of what the recipe must not know, with their names."""
    return file_hashes(task)[0]
