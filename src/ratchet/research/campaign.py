"""A research run in the hands of one process: its task, its repository, its meter, its engines, its best."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ratchet.engines import Engine
from ratchet.engines.offering import Way
from ratchet.engines.preflight import require_ready
from ratchet.engines.registry import Surroundings
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse, RunId
from ratchet.ledger import Run, Transaction
from ratchet.ledger.files import sync_file_system
from ratchet.ledger.research import get_standing
from ratchet.research.adapter import Specialist, TaskAdapter
from ratchet.research.clock import Clock
from ratchet.research.keeping import Champion, Noise
from ratchet.research.measuring import TaskMeter
from ratchet.research.plan import Plan
from ratchet.research.shipped import shipped_directory
from ratchet.research.stops import Stops
from ratchet.research.tasks import pinned_task
from ratchet.runtime import GroupCommit, JobContext
from ratchet.workspaces import Repository
from ratchet.workspaces.memory import memory_directory

BEST = "refs/heads/best"
REPLAY = "replay"
Opener = Callable[[str | None, Surroundings], Engine]
"""Opens an engine by its name, as `engines.registry.open_engine` does."""


def research_directory(home: Path, run_id: int) -> Path:
    return home / "research" / str(run_id)


def task_directory(home: Path, task_hash: str) -> Path:
    """Where the pinned copy of a task lies; runs of one task share it."""
    return home / "research" / "tasks" / task_hash


def task_of(home: Path, run: Run) -> TaskAdapter:
    """The task as a run began with it. Raises `NotFound` when its copy is not here, `Misuse` for an imported run."""
    plan = Plan.of(run.spec)
    return pinned_task(task_directory(home, plan.task_hash), plan.variant)


@dataclass(kw_only=True)
class Campaign:
    """What every part of the supervisor needs. `champion` and `noise` are known once there is a baseline."""

    job: JobContext
    run: Run
    plan: Plan
    task: TaskAdapter
    repository: Repository
    meter: TaskMeter
    stops: Stops
    specialists: tuple[Specialist, ...]
    engines: Mapping[str, Engine]
    baseline_commit: str = ""
    champion: Champion | None = None
    noise: Noise = field(default_factory=Noise)
    submitted: int = 0
    """Trials that count so far, as the standing in the ledger has it."""
    promised: set[str] = field(default_factory=set)
    """Lanes whose session may still hand in a trial."""
    draws: int = 0
    infra_in_a_row: int = 0
    clock: Clock = field(default_factory=Clock)
    shared_prompts: dict[Way, str] = field(default_factory=dict)
    """What every session is told at first, once it was put together. The task is a copy that nobody changes."""

    @property
    def run_id(self) -> RunId:
        return self.run.id

    @property
    def parallel(self) -> int:
        """How many sessions run at once."""
        return (
            self.plan.parallel or len(self.task.slots.names) or self.task.slots.count or os.cpu_count() or 1
        )

    @property
    def best(self) -> Champion:
        """The best so far. There is one from the baseline on."""
        assert self.champion is not None
        return self.champion

    @cached_property
    def together(self) -> GroupCommit:
        """How sessions and trials side by side write what they may write together."""
        return GroupCommit(self.job)

    @cached_property
    def evaluators(self) -> tuple[Path, ...]:
        """Where evaluators and their data lie: an agent sees the machine, but not these."""
        origin = self.plan.origin
        return (self.task.root, shipped_directory(), *(() if origin is None else (origin,)))

    def next_draw(self) -> int:
        """A number that no other draw of a search has, in this process or before it."""
        self.draws += 1
        return self.draws

    def engine(self, specialist: Specialist) -> Engine:
        return self.engines[specialist.name]

    def side_by_side(self, specialist: Specialist) -> int | None:
        """Among how many sessions what is left of the budget is divided. A search uses none of it."""
        if self.engine(specialist).capabilities.learns_scores:
            return None
        most = self.stops.trials
        left = len(self.specialists) if most is None else max(1, most - self.submitted)
        return min(self.parallel, len(self.specialists), left)

    def model(self, specialist: Specialist) -> str | None:
        return self.plan.model or specialist.model

    def over(self) -> str | None:
        """Why the run is over by now, if it is."""
        with self.job.write() as tx:
            self.count_time(tx)
            return self.stops.reached(get_standing(tx, self.run_id))

    def count_time(self, tx: Transaction) -> None:
        self.clock.count(tx, self.run_id)


@asynccontextmanager
async def open_campaign(job: JobContext, run: Run, opener: Opener) -> AsyncIterator[Campaign]:
    """Everything opened and looked at, before anything is spent.

    Raises `Misuse` for what can never work, and `NotReady` for an engine that cannot work now.
    """
    plan = Plan.of(run.spec)
    home = job.runtime.home
    task = pinned_task(task_directory(home, plan.task_hash), plan.variant)
    task.keep = replace(task.keep, policy=plan.keep_policy or task.keep.policy)
    engines = await _engines(job, run, plan, task, opener)
    specialists = _roster(plan, task, engines)
    path = research_directory(home, run.id) / "repo.git"
    repository = await asyncio.to_thread(_repository, path)
    try:
        meter = await asyncio.to_thread(_meter, task, repository, home, plan.origin)
        yield Campaign(
            job=job,
            run=run,
            plan=plan,
            task=task,
            repository=repository,
            meter=meter,
            stops=Stops.of(plan, task),
            specialists=specialists,
            engines={each.name: engines[plan.engine or each.engine] for each in specialists},
        )
    finally:
        await in_thread(repository.close)


def _meter(task: TaskAdapter, repository: Repository, home: Path, origin: Path | None) -> TaskMeter:
    meter = TaskMeter(task, repository, home, origin=origin)
    # Looked up once, and slowly.
    meter.environment_facts()
    return meter


def _repository(path: Path) -> Repository:
    workspaces = memory_directory(path)
    if path.exists():
        return Repository.open(path, workspaces=workspaces)
    made = Repository.create(path, workspaces=workspaces)
    # Trials are written into it without waiting for more than themselves.
    sync_file_system(path)
    return made


async def _engines(
    job: JobContext, run: Run, plan: Plan, task: TaskAdapter, opener: Opener
) -> dict[str | None, Engine]:
    """The engines by their names. One that cannot work now is an error at once, not a pause without end."""
    surroundings = Surroundings(job.runtime.settings, job.runtime.home, os.environ)
    names = {plan.engine} if plan.engine else {each.engine for each in task.roster}
    return {name: await _ready(opener(name, surroundings), run) for name in names}


def _roster(plan: Plan, task: TaskAdapter, engines: Mapping[str | None, Engine]) -> tuple[Specialist, ...]:
    """Who takes part. A search reads no preamble, so that several of it would only share out what each learns."""
    if plan.specialists:
        return tuple(each for each in task.roster if each.name in plan.specialists)
    if plan.engine and engines[plan.engine].capabilities.learns_scores:
        return (Specialist(name=plan.engine.partition(":")[0]),)
    return task.roster


async def _ready(engine: Engine, run: Run) -> Engine:
    if not engine.capabilities.edits_files:
        raise Misuse(
            f"the engine {engine.name} edits no files, so it cannot be a specialist",
            hint="see `ratchet engine list`",
        )
    if engine.name == REPLAY and not run.simulated:
        raise Misuse(
            "a recording proposes nothing new, so it cannot carry a run that is no simulation",
            hint="start the run with --simulated",
        )
    await require_ready(engine)
    return engine
