"""Measuring commits of a run: a slot, a trial, an evaluator, and one finite score or the reason why there is none."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ratchet.judges.evaluator import (
    Evaluator,
    EvaluatorFailed,
    Scored,
    TrialFailed,
    ask_evaluator,
    call_trial,
    run_evaluator,
    run_trial,
)
from ratchet.judges.judge import Deadline
from ratchet.judges.reports import BadReport
from ratchet.judges.scratch import ending_text, in_thread, scratch
from ratchet.kernel import NotFound, TrialStatus, decoded, fingerprint
from ratchet.placement import LOCAL, PlacedWork, Placement, carry_out
from ratchet.programs import run_program
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement.checkout import RecipePaths, TaskPrograms, fresh_checkout, staged_files
from ratchet.research.measurement.inspection import CandidateInspection, look, looks_itself
from ratchet.research.measurement.machine import Machine
from ratchet.research.measurement.placed import Shipment
from ratchet.research.measurement.result import (
    FAILURES,
    Measurement,
    MeasurementRecord,
    Unmeasured,
    unmeasured,
)
from ratchet.research.measurement.slots import Lease, SlotPool
from ratchet.sandbox import granted
from ratchet.workspaces import Repository, WorkspaceKind, find_git
from ratchet.workspaces.objects import Cache


def environment_facts(task: TaskAdapter) -> dict[str, Any]:
    """Python, the machine, git, the sandbox, and the versions of the packages that the task's programs import."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "packages": _versions(task),
        "git": _git_version(),
        "sandbox": sorted(granted().names),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown"


def _versions(task: TaskAdapter) -> dict[str, str]:
    programs = (task.evaluator, *(() if task.trial is None else (task.trial,)))
    names = {module.partition(".")[0] for program in programs for module in program.modules}
    packages = importlib.metadata.packages_distributions()
    return {
        package: importlib.metadata.version(package)
        for name in sorted(names - set(sys.stdlib_module_names))
        for package in sorted(set(packages.get(name, ())))
    }


def _git_version() -> str:
    said = run_program([find_git(), "--version"], seconds=10, environment={})
    return decoded(said.stdout).strip().removeprefix("git version ")


_LEAST_BYTES = 1024 * 1024


def lacks_room(place: Path) -> bool:
    """Whether the disk of `place` is full, and not by what was written there."""
    try:
        disk = os.statvfs(place)
        if disk.f_bavail * disk.f_frsize >= _LEAST_BYTES:
            return False
        written = sum(each.lstat().st_blocks * 512 for each in place.rglob("*"))
    except OSError:
        return False
    return written < disk.f_blocks * disk.f_frsize // 2


_QUESTION_BYTES = 32 * 1024 * 1024
_ENDLESS = Deadline(None)


class TaskMeter:
    """Measures commits of `repository` as `task`, which is the run's own copy, says it.

    `home` is Ratchet's, where the files of named slots are. `origin` is the folder that the task was copied from.
    Candidates are looked at here and measured where `placement` puts them. Making one hashes all that decides, and
    raises `Misuse` for a task that cannot be measured.
    """

    def __init__(
        self,
        task: TaskAdapter,
        repository: Repository,
        home: Path,
        *,
        origin: Path | None = None,
        placement: Placement = LOCAL,
    ) -> None:
        self._task = task
        self._placement = placement
        # What every candidate is compared with, also by the next process of the run: nodes have its files already.
        self._base = ""
        self._shipments = lru_cache(maxsize=2)(
            lambda base: Shipment(self._task, self._repository, self.hash, base)
        )
        self._repository = repository
        self._recipe = RecipePaths(task.recipe)
        self.machine = Machine(task, home)
        self._programs = TaskPrograms(task, self.machine, origin)
        self._staged = staged_files(task)
        self._inspection = CandidateInspection(task, repository)
        self._slots = SlotPool(task.slots, home / "slots")
        self._questions: Cache[tuple[Any]] = Cache(_QUESTION_BYTES)
        trial = task.trial
        self._commands = trial is not None and not trial.is_node
        self._has_run = False
        # A function in an only file is read from the commit itself.
        alone = trial is not None and trial.is_node and task.recipe == (trial.file,) and not self._staged
        self._needs_checkout = not alone or task.evaluator.reads_candidate

    @cached_property
    def hash(self) -> str:
        """A SHA-256 over everything that decides a score."""
        task, programs = self._task, self._programs
        return fingerprint(
            "measurement 1",
            trial=task.trial,
            processes=task.processes_per_measurement,
            evaluator=task.evaluator,
            evaluator_files=programs.evaluator_files,
            inputs=programs.inputs,
            held_out_inputs=programs.held_out_inputs,
            stage_files={place: _sha256(file.content) for place, file in self._staged.items()},
            writes=bool(task.output_dirs),
            environment=task.environment,
            slots=task.slots.kind if task.slots.names else "",
            recipe=task.recipe,
            size=(task.size_limit_bytes, task.size_paths),
            score_field=task.score_field,
            code=_own_code(task),
            **({"data": self.machine.data} if task.data else {}),
            **({"images": self.machine.images} if self.machine.images else {}),
            **({} if task.apply is None else {"apply": task.apply}),
        )

    @cached_property
    def _environment_facts(self) -> Mapping[str, Any]:
        foreign = self.machine.environments
        known = {str(each.path): f"{len(each.stamps)} files" for each in foreign}
        return environment_facts(self._task) | ({"environments": known} if known else {})

    def environment_facts(self) -> Mapping[str, Any]:
        """Where this process measures, for certificates. Worked out once; the first time takes a moment."""
        return self._environment_facts

    async def preflight(self, commit: str, base: str) -> None:
        """Raises `Unmeasured` for a commit that is not worth a measurement.

        What it changed since `base`, its syntax and its size are looked at in the repository. There is a checkout only
        for a task that looks by itself.
        """
        self._base = base
        record = self._record()
        try:
            await in_thread(lambda: self._inspection.look(commit, base))
            if looks_itself(self._task):
                async with fresh_checkout(self._repository, commit, self._staged, None) as directory:
                    await in_thread(lambda: look(self._task, directory))
        except FAILURES as error:
            raise unmeasured(error, record) from error

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        """One score of a fresh checkout. Raises `Unmeasured`. Cancelling it leaves nothing running."""
        shipment = self._shipments(self._base or commit)
        work = PlacedWork(
            name=f"measure {commit[:12]} with seed {seed}",
            here=lambda: self._measure_here(commit, seed, held_out),
            there=lambda: shipment.order(commit, seed, held_out=held_out),
            needs=shipment.needs,
        )
        try:
            found = await carry_out(self._placement, work)
        except FAILURES as error:
            raise unmeasured(error, self._record()) from error
        if isinstance(found, Unmeasured):
            raise found
        return found

    async def _measure_here(self, commit: str, seed: int, held_out: bool) -> Measurement | Unmeasured:
        record = self._record()
        try:
            async with self._slots.lease() as lease:
                record.slot = lease.name
                began = time.monotonic()
                async with self._unchanged(held_out), lease.kept():
                    scored = await self._scored(_Wanted(commit, seed, held_out, lease), record)
                wall_ms = (time.monotonic() - began) * 1000
        except FAILURES as error:
            raise unmeasured(error, record) from error
        except RecursionError:
            reason = "what the trial returned is nested too deeply to be scored"
            raise Unmeasured(TrialStatus.CRASH, reason, facts=record.facts()) from None
        return Measurement(
            commit=commit,
            seed=seed,
            held_out=held_out,
            score=scored.score,
            measurements=scored.measurements,
            wall_ms=wall_ms,
            facts=record.facts(evaluator=scored.finished, well=True),
            feedback=record.feedback(scored.feedback),
        )

    async def _scored(self, wanted: _Wanted, record: MeasurementRecord) -> Scored:
        evaluator = self._programs.evaluator(wanted.lease, wanted.held_out)
        question = await self._question(wanted, evaluator)
        async with AsyncExitStack() as stack:
            directory = None
            if self._needs_checkout:
                # A mount that is younger than the parents of nodes is not seen by them.
                kind = None if self._commands else WorkspaceKind.TREE
                opened = fresh_checkout(self._repository, wanted.commit, self._staged, kind)
                directory = await stack.enter_async_context(opened)
                record.roots.append(str(directory))
            if self._commands:
                record.place = await stack.enter_async_context(scratch())
            # One after the other, each as if it were the only one: what runs beside a process can be measured in it.
            try:
                for number in range(self._task.processes_per_measurement):
                    await self._run(number, wanted, question, directory, record)
            except TrialFailed:
                # To be asked while what it wrote is still there.
                place = record.place
                record.no_room = place is not None and await in_thread(lambda: lacks_room(place))
                raise
            return await run_evaluator(
                evaluator,
                directory,
                record.rans,
                record.place,
                seed=wanted.seed,
                deadline=_ENDLESS,
                known={"held_out": wanted.held_out, "question": question},
                classify=self._classified,
            )

    async def _run(
        self, number: int, wanted: _Wanted, question: Any, directory: Path | None, record: MeasurementRecord
    ) -> None:
        """Run one process of a measurement. It is not told which split it works on."""
        trial = self._programs.trial(wanted.lease, wanted.held_out)
        if trial is None:
            return
        seed = wanted.seed * self._task.processes_per_measurement + number
        apply = self._programs.apply(wanted.lease)
        given = {"seed": seed, "question": question if apply is None else None}
        if trial.function is not None:
            source = await self._source(wanted.commit)
            ran = await call_trial(trial, source, given, seed=seed, deadline=_ENDLESS, directory=directory)
        else:
            assert directory is not None
            assert record.place is not None
            place = record.place / str(number)
            place.mkdir()
            record.roots.append(str(place / "candidate"))
            stdin = json.dumps(given).encode()
            ran = await run_trial(trial, directory, place, seed=seed, deadline=_ENDLESS, stdin=stdin)
            if apply is not None:
                assert ran.out is not None
                record.applies = True
                record.roots.append(str(ran.out))
                stdin = json.dumps({"seed": seed, "question": question}).encode()
                applied = await run_trial(
                    apply, ran.out, place / "apply", seed=seed, deadline=_ENDLESS, stdin=stdin
                )
                ran = replace(applied, trained=ran)
                record.applies = False
        record.rans.append(ran)
        self._has_run = True

    async def _question(self, wanted: _Wanted, evaluator: Evaluator) -> Any:
        """What the evaluator asks for this seed on this split: always the same, so it is asked once."""
        prepare = self._programs.prepare
        if prepare is None:
            return None
        key = f"{wanted.seed} {wanted.held_out}"
        known = self._questions.get(key)
        if known is None:
            asked = {"seed": wanted.seed, "held_out": wanted.held_out}
            finished = await ask_evaluator(evaluator, prepare, asked, seed=wanted.seed, deadline=_ENDLESS)
            if not finished.ok:
                raise EvaluatorFailed(f"{prepare.name} of the evaluator: {ending_text(finished)}", finished)
            known = (finished.value,)
            self._questions.put(key, known, len(finished.stdout))
        return known[0]

    async def _source(self, commit: str) -> str:
        """The file of the trial's function, as the commit has it."""
        return await in_thread(lambda: self._read_source(commit), unless=self._repository.is_at_hand(commit))

    def _read_source(self, commit: str) -> str:
        assert self._task.trial is not None
        file = self._task.trial.file
        try:
            return self._repository.read_file(commit, file).decode()
        except NotFound as error:
            if error.entity != "file":
                raise
            raise Unmeasured(TrialStatus.CRASH, f"the commit has no {file}") from None
        except UnicodeDecodeError:
            raise Unmeasured(TrialStatus.CRASH, f"{file} is not UTF-8") from None

    @asynccontextmanager
    async def _unchanged(self, held_out: bool) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for pinned in self._programs.pinned(held_out=held_out):
                await stack.enter_async_context(pinned.unchanged())
            yield

    def _classified(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            found: object = self._task.classify(answer)
        except Exception as error:
            raise BadReport(
                f"the task cannot classify the answer: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, Mapping):
            raise BadReport(f"the task classifies the answer as {type(found).__name__}, not as an object")
        return found

    def _record(self) -> MeasurementRecord:
        return MeasurementRecord(self._recipe, self._commands, self._has_run)


@dataclass(frozen=True, slots=True)
class _Wanted:
    commit: str
    seed: int
    held_out: bool
    lease: Lease


def _own_code(task: TaskAdapter) -> str:
    """What stands for the code of a task that is more than a description."""
    kind = type(task)
    if kind is TaskAdapter:
        return ""
    try:
        return _sha256(inspect.getsource(kind).encode())
    except (OSError, TypeError):
        return task.sha256 or f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
