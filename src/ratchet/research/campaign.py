"""A research run in the hands of one process: its task, its repository, its meter, its engines, its best."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, TypedDict

from ratchet.engines import Engine
from ratchet.engines.preflight import require_ready
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.tool_server import Way
from ratchet.files import sync_file_system
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse, NotFound, RatchetError, RunId
from ratchet.ledger import Ledger, Run, Transaction
from ratchet.ledger.artifacts import first_named
from ratchet.ledger.research import Standing, add_active, get_standing
from ratchet.placement import Placement, placement_for
from ratchet.research.adapter import Specialist, TaskAdapter
from ratchet.research.decision import CertificateKey, Champion, Noise, environment_hash
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.novelty import Novelty
from ratchet.research.sessions.author import RecipeAuthor
from ratchet.research.shipped import shipped_directory
from ratchet.research.strategy import GREEDY, Choice, Population, find_strategy, greedy
from ratchet.research.tasks import pinned_task, read_in_task, write_task
from ratchet.runtime import GroupCommit, JobContext
from ratchet.workspaces import Repository
from ratchet.workspaces.directories import memory_directory
from ratchet.workspaces.packs import fetch_commits

# Less is not worth a statement.
_LEAST_MS = 100


@dataclass(slots=True)
class RunClock:
    """Counts each millisecond once, however many ask."""

    _marked: float = field(default_factory=time.monotonic)
    _counting: Transaction | None = None

    def count(self, tx: Transaction, run_id: RunId) -> None:
        """Write down what has passed: once in a transaction, whoever shares it, and again if it is rolled back."""
        ms = int((time.monotonic() - self._marked) * 1000)
        if ms < _LEAST_MS or self._counting is tx:
            return
        self._counting = tx
        add_active(tx, run_id, ms)
        tx.after_commit(lambda: self._mark(ms))

    def _mark(self, ms: int) -> None:
        self._marked += ms / 1000


_LONGEST = 200


def check_name(name: str) -> None:
    """Raises `Misuse` for a name that cannot be told from a number, or not be shown on a line."""
    if not name.strip() or name.isdigit() or not name.isprintable() or len(name) > _LONGEST:
        raise Misuse(f"a run cannot be called {name[:_LONGEST]!r}", hint="use a word; numbers are run ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """What a person may choose. What is `None` is left to the task.

    `trials`, `hours` and `hours_without_keep` are hard stops; tokens and money are budgets of the run.
    """

    engine: str | None = None
    model: str | None = None
    strategy: str | None = None
    specialists: tuple[str, ...] = ()
    keep_policy: str | None = None
    lineage: bool = True
    parallel: int | None = None
    seed: int = 0
    trials: int | None = None
    hours: float | None = None
    hours_without_keep: float | None = None
    baseline_score: float | None = None

    def chosen(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(RunChoices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchPlan(RunChoices):
    """`task` is how it was named, `task_root` the folder that was, and `task_hash` what it held then.

    `columns` are what the task wants to see beside the score. `plain_baseline` and `known_best` are what it says others
    reach, to be shown next to the run's own best.
    """

    task: str
    task_hash: str
    task_root: str = ""
    variant: str | None = None
    columns: tuple[str, ...] = ()
    plain_baseline: str = ""
    known_best: str = ""

    @property
    def origin(self) -> Path | None:
        """The folder that the task was found in, which no measured program may read."""
        return Path(self.task_root) if self.task_root else None

    def spec(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> ResearchPlan:
        known = {each.name for each in fields(cls)}
        unknown = set(spec) - known
        if unknown or not {"task", "task_hash"} <= set(spec):
            raise Misuse(
                "the run was not planned by this Ratchet, so it cannot be resumed",
                hint="an imported run is a record; start a new one with `ratchet research run`",
            )
        lists = {name: tuple(spec.get(name, ())) for name in ("specialists", "columns")}
        return cls(**{**spec, **lists})


_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Stops:
    """Hard stops. Hours are those in which the run really ran: a pause and the time until a restart do not count."""

    trials: int | None = None
    hours: float | None = None
    hours_without_keep: float | None = None

    @classmethod
    def of(cls, plan: ResearchPlan, task: TaskAdapter) -> Stops:
        return cls(
            plan.trials if plan.trials is not None else task.max_trials,
            plan.hours if plan.hours is not None else task.max_hours,
            plan.hours_without_keep if plan.hours_without_keep is not None else task.hours_without_keep,
        )

    @property
    def made_all(self) -> str:
        """Why a run is over that has made its trials."""
        return "its only trial was made" if self.trials == 1 else f"all {self.trials} trials were made"

    def reached(self, standing: Standing) -> str | None:
        """Why the run is over, in words for the record."""
        if self.trials is not None and standing.trials >= self.trials:
            return self.made_all
        if self.hours is not None and standing.active_ms >= self.hours * _HOUR_MS:
            return f"it ran for {self.hours:g} hours"
        since = standing.active_ms - standing.kept_at_ms
        if self.hours_without_keep is not None and since >= self.hours_without_keep * _HOUR_MS:
            return f"nothing was kept for {self.hours_without_keep:g} hours"
        return None

    def seconds_left(self, standing: Standing) -> float:
        """How long a session that begins now may take."""
        if self.hours is None:
            return float("inf")
        return max(1.0, (self.hours * _HOUR_MS - standing.active_ms) / 1000)


BEST = "refs/heads/best"
REPLAY = "replay"
Opener = Callable[[str | None, EngineContext], Engine]
"""Opens an engine by its name, as `engines.registry.open_engine` does."""


def research_directory(home: Path, run_id: int) -> Path:
    return home / "research" / str(run_id)


def task_directory(home: Path, task_hash: str) -> Path:
    """Where the pinned copy of a task lies; runs of one task share it."""
    return home / "research" / "tasks" / task_hash


_TASK, _DATA = "task.tar", "data.json"


def task_of(ledger: Ledger, home: Path, run: Run) -> TaskAdapter:
    """The task as a run began with it. Raises `NotFound` when its copy is not here, `Misuse` for an imported run."""
    plan = ResearchPlan.of(run.spec)
    directory = task_directory(home, plan.task_hash)
    try:
        return pinned_task(directory, plan.variant)
    except NotFound:
        with ledger.read() as tx:
            kept = first_named(tx, run.id, _TASK)
        if kept is None:
            raise
    with ledger.artifacts.open(kept.sha256) as file:
        read_in_task(directory, file)
    return pinned_task(directory, plan.variant)


def record_task(tx: Transaction, ledger: Ledger, home: Path, run_id: RunId, task_hash: str) -> None:
    """Keep the pinned copy of a task for workers that do not share this disk, if there may be some."""
    if ledger.artifacts.bucket is None:
        return
    with tempfile.TemporaryFile() as file:
        write_task(task_directory(home, task_hash), file)
        file.seek(0)
        ledger.artifacts.put(tx, file, name=_TASK, media_type="application/x-tar", run_id=run_id, pinned=True)


class SoFar(TypedDict):
    """How many trials of a run were kept, and how many are to be made."""

    keeps: int
    planned: int | None


@dataclass(kw_only=True)
class Campaign:
    """What every part of the supervisor needs. `champion` and `noise` are known once there is a baseline."""

    job: JobContext
    run: Run
    plan: ResearchPlan
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
    keeps: int = 0
    """Trials that were kept so far."""
    promised: set[str] = field(default_factory=set)
    """Lanes whose session may still submit a trial."""
    draws: int = 0
    infra_in_a_row: int = 0
    clock: RunClock = field(default_factory=RunClock)
    packs: dict[str, bytes] = field(default_factory=dict)
    """What commits whose trials are not open yet add to the repository, if the run is not bound to this disk."""
    shared_prompts: dict[tuple[Way, bool], str] = field(default_factory=dict)
    """The prompt that every session starts with, once it was put together. The task is a copy that is never changed."""

    def __post_init__(self) -> None:
        self.strategy = self.plan.strategy or GREEDY
        self._choose = find_strategy(self.strategy)
        self.population = Population(self.task.direction)
        alike = self.job.runtime.settings.research.novelty
        self.novelty = Novelty(self.task, alike=alike)

    def choose(self, specialist: Specialist) -> Choice:
        """From where the next session of a specialist begins. A search has a population of its own: the best.

        Raises `Misuse` for what the strategy cannot do, and `RatchetError` for one that is broken.
        """
        if self.engine(specialist).capabilities.learns_scores:
            return greedy(self.population, Random(0))
        return self.chosen(Random(f"{self.plan.seed}/{self.next_draw()}"))

    def chosen(self, chance: Random) -> Choice:
        try:
            return self._choose(self.population, chance)
        except RatchetError:
            raise
        except Exception as error:
            raise RatchetError(
                f"the strategy {self.strategy} failed: {type(error).__name__}: {error}",
                hint="fix or uninstall the package that brings it",
            ) from error

    @property
    def run_id(self) -> RunId:
        return self.run.id

    @property
    def travels(self) -> bool:
        """Whether a worker that does not share this disk can take the run over."""
        return self.job.ledger.artifacts.bucket is not None

    @property
    def parallel(self) -> int:
        """How many sessions run at once."""
        return (
            self.plan.parallel or len(self.task.slots.names) or self.task.slots.count or os.cpu_count() or 1
        )

    @property
    def given_baseline(self) -> float | None:
        """The score of the baseline that the person or the task gave, which is then not measured."""
        if self.task.requires_calibrated_baseline:
            return None
        given = self.plan.baseline_score
        return self.task.baseline_score if given is None else given

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
        own = () if origin is None else (origin,)
        return (self.task.root, shipped_directory(), *own, *self.meter.machine.secrets)

    def so_far(self) -> SoFar:
        """What the level of the next decision follows from."""
        return {"keeps": self.keeps, "planned": self.stops.trials}

    @cached_property
    def key(self) -> CertificateKey:
        """What certificates are signed with."""
        return CertificateKey(self.job.runtime.home)

    @cached_property
    def environment_hash(self) -> str:
        return environment_hash(self.meter.environment_facts())

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
        return specialist.model

    def over(self) -> str | None:
        """Why the run is over by now, if it is."""
        with self.job.write() as tx:
            self.count_time(tx)
            return self.stops.reached(get_standing(tx, self.run_id))

    def count_time(self, tx: Transaction) -> None:
        self.clock.count(tx, self.run_id)


@asynccontextmanager
async def open_campaign(
    job: JobContext, run: Run, opener: Opener, placement: Placement | None = None
) -> AsyncIterator[Campaign]:
    """Everything opened and looked at, before anything is spent.

    Raises `Misuse` for what can never work, `NotReady` for an engine that cannot work now, and `Missing` for data, a
    Python or a GPU that this machine does not have, or that is not what the run began with.
    """
    plan = ResearchPlan.of(run.spec)
    home = job.runtime.home
    task = await asyncio.to_thread(task_of, job.ledger, home, run)
    task.keep = replace(task.keep, policy=plan.keep_policy or task.keep.policy)
    engines = await _engines(job, run, plan, task, opener)
    specialists = _roster(plan, task, engines)
    path = research_directory(home, run.id) / "repo.git"
    repository = await asyncio.to_thread(_repository, path)
    try:
        if job.ledger.artifacts.bucket is not None:
            await asyncio.to_thread(fetch_commits, job.ledger, run.id, repository)
        placement = placement or placement_for(job.runtime.settings, task.placement.kind)
        meter = await asyncio.to_thread(_meter, job, task, repository, plan.origin, placement)
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


def _meter(
    job: JobContext, task: TaskAdapter, repository: Repository, origin: Path | None, placement: Placement
) -> TaskMeter:
    meter = TaskMeter(task, repository, job.runtime.home, origin=origin, placement=placement)
    record = repository.path.with_name(_DATA)
    if job.ledger.artifacts.bucket is None:
        meter.machine.hold_to(record)
    else:
        _hold_to_shared(job, meter, record)
    # Looked up once, and slowly.
    meter.environment_facts()
    return meter


def _hold_to_shared(job: JobContext, meter: TaskMeter, record: Path) -> None:
    """Hold the machine to the data that the run began with on whichever machine."""
    store = job.ledger.artifacts
    with job.ledger.read() as tx:
        kept = first_named(tx, job.run_id, _DATA)
    if kept is not None and not record.exists():
        record.write_bytes(store.read(kept.sha256))
    meter.machine.hold_to(record)
    if kept is None and record.exists():
        with job.write() as tx:
            store.put(tx, record.read_bytes(), name=_DATA, run_id=job.run_id, pinned=True)


def _repository(path: Path) -> Repository:
    workspaces = memory_directory(path)
    if path.exists():
        return Repository.open(path, workspaces=workspaces, bounds=CANDIDATE_BOUNDS)
    made = Repository.create(path, workspaces=workspaces, bounds=CANDIDATE_BOUNDS)
    # Trials are written into it without waiting for more than themselves.
    sync_file_system(path)
    return made


async def _engines(
    job: JobContext, run: Run, plan: ResearchPlan, task: TaskAdapter, opener: Opener
) -> dict[str | None, Engine]:
    """The engines by their names. One that cannot work now is an error at once, not a pause without end."""
    surroundings = EngineContext(job.runtime.settings, job.runtime.home, os.environ)
    names = {plan.engine} if plan.engine else {each.engine for each in task.roster}
    return {name: await _ready(open_specialist(name, surroundings, task, opener), run) for name in names}


def _roster(
    plan: ResearchPlan, task: TaskAdapter, engines: Mapping[str | None, Engine]
) -> tuple[Specialist, ...]:
    """Who takes part. A search reads no preamble, so that several of it would only share out what each learns."""
    if not plan.specialists and plan.engine and engines[plan.engine].capabilities.learns_scores:
        return (Specialist(name=plan.engine.partition(":")[0], model=plan.model),)
    return roster_of(plan, task)


def roster_of(chosen: RunChoices, task: TaskAdapter) -> tuple[Specialist, ...]:
    """The specialists of a run with their models. Of several models each specialist takes part once with each."""
    roster = [each for each in task.roster if not chosen.specialists or each.name in chosen.specialists]
    models = [name.strip() for name in (chosen.model or "").split(",") if name.strip()]
    if len(models) < 2:
        return tuple(replace(each, model=chosen.model or each.model) for each in roster)
    return tuple(
        replace(each, name=f"{each.name}@{model}", model=model)
        for each in roster
        for model in dict.fromkeys(models)
    )


def open_specialist(
    name: str | None, surroundings: EngineContext, task: TaskAdapter, opener: Opener = open_engine
) -> Engine:
    """The engine of a specialist. One that only answers is shown the recipe, and its edits are applied for it."""
    engine = opener(name, surroundings)
    return engine if engine.capabilities.edits_files else RecipeAuthor(engine, task)


async def _ready(engine: Engine, run: Run) -> Engine:
    if engine.name == REPLAY and not run.simulated:
        raise Misuse(
            "a recording proposes nothing new, so it cannot be the engine of a run that is no simulation",
            hint="start the run with --simulated",
        )
    await require_ready(engine)
    return engine
