"""A measurement on another machine: what it is sent, and what it does with it.

The task and one commit's files go there once, by their hashes; of every other commit only what differs. There a meter
like the one here measures it, if everything that decides a score is the same.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ratchet.judges.scratch import in_thread
from ratchet.kernel import Conflict, RatchetError, TrialStatus
from ratchet.placement import NodeContext, NodeNeeds, NodeUnfit, Order, chosen_needs, content_hash
from ratchet.research.adapter import MOST_SLOTS, Slots, TaskAdapter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.measurement.result import Measurement, Unmeasured
from ratchet.research.tasks.catalog import pinned_task, read_in_task, write_task
from ratchet.workspaces import Identity, Repository, RepositoryUnwritable
from ratchet.workspaces.directories import memory_directory

if TYPE_CHECKING:
    from ratchet.research.measurement.meter import TaskMeter

_MEASURE = "ratchet.research.measurement.placed:measure"
_NOBODY = Identity("Ratchet", "ratchet@localhost")


class _File(NamedTuple):
    content: bytes
    executable: bool


Files = Mapping[str, _File | None]
"""By path; `None` is a file that is gone."""


class Wanted(NamedTuple):
    """One measurement: of `commit`, which differs from the files of the hash `base` by `changes`."""

    task: str
    variant: str | None
    meter: str
    base: str
    commit: str
    changes: Files
    seed: int
    held_out: bool


@dataclass
class Shipment:
    """What a run's measurements have in common. The task is the run's own copy."""

    task: TaskAdapter
    repository: Repository
    meter: str
    base: str

    @cached_property
    def _task_pack(self) -> tuple[str, bytes]:
        out = io.BytesIO()
        write_task(self.task.root.parent, out)
        return content_hash(out.getvalue()), out.getvalue()

    @cached_property
    def _base_pack(self) -> tuple[str, bytes]:
        return _packed({path: self._file(self.base, path) for path in self.repository.list_files(self.base)})

    def order(self, commit: str, seed: int, *, held_out: bool) -> Order:
        """May read files, and is therefore for a thread."""
        changes = {
            change.path: None if change.after is None else self._file(commit, change.path)
            for change in self.repository.changes(self.base, commit)
        }
        (task, _), (base, _) = self._task_pack, self._base_pack
        wanted = Wanted(task, self.task.variant, self.meter, base, commit, changes, seed, held_out)
        return Order(_MEASURE, wanted, dict([self._task_pack, self._base_pack]), self.meter)

    @cached_property
    def needs(self) -> NodeNeeds:
        """What one measurement takes: its slot, and the memory of the largest of its programs."""
        task = self.task
        programs = [each for each in (task.trial, task.apply, task.evaluator) if each is not None]
        first = task.slots.names[0].split(",") if task.slots.names else []
        gpu = task.slots.kind == "gpu"
        memory = [each.bounds.memory_bytes for each in programs if each.bounds.memory_bytes]
        usual = NodeNeeds(
            cpus=1.0 if gpu or not first else float(len(first)),
            gpus=len(first) if gpu else 0,
            memory_bytes=max(memory, default=None),
        )
        return chosen_needs(task.placement, usual)

    def _file(self, commit: str, path: str) -> _File:
        entry = self.repository.list_files(commit)[path]
        if not entry.is_file:
            raise Unmeasured(
                TrialStatus.DISQUALIFIED, f"{path} is no plain file, and cannot be sent to a node"
            )
        return _File(self.repository.read_file(commit, path), bool(entry.mode & 0o100))


def _packed(files: Files) -> tuple[str, bytes]:
    content = pickle.dumps(sorted(files.items()))
    return content_hash(content), content


class _Bench:
    """A task and its commits on a node, for all measurements that one process makes of them."""

    def __init__(self, wanted: Wanted, node: NodeContext) -> None:
        from ratchet.research.measurement.meter import TaskMeter  # which imports this module

        try:
            directory = node.cache / "tasks" / wanted.task
            read_in_task(directory, io.BytesIO(node.read(wanted.task)))
            task = pinned_task(directory, wanted.variant)
            task.slots = _slots(task.slots, node)
            self.repository = _repository(node.cache / "repositories" / f"{wanted.task}.git")
            self.meter: TaskMeter = TaskMeter(task, self.repository, node.cache)
        except RatchetError as error:
            raise NodeUnfit(f"{node.name} cannot measure it: {error}") from error
        if self.meter.hash != wanted.meter:
            raise NodeUnfit(
                f"{node.name} would measure by {self.meter.hash[:12]}, and the run does by {wanted.meter[:12]}: "
                "its task, its data or its programs are others"
            )
        self._base = self._committed(dict(pickle.loads(node.read(wanted.base))), None)
        self._commits: OrderedDict[str, str] = OrderedDict()

    def commit(self, wanted: Wanted) -> str:
        """A commit here with the same files."""
        if wanted.commit not in self._commits:
            self._commits[wanted.commit] = self._committed(wanted.changes, self._base)
        return self._commits[wanted.commit]

    def _committed(self, files: Files, parent: str | None) -> str:
        return self.repository.commit_files(
            {path: None if file is None else file.content for path, file in files.items()},
            parent=parent,
            message="measured",
            author=_NOBODY,
            executable=[path for path, file in files.items() if file is not None and file.executable],
        )


def _repository(path: Path) -> Repository:
    """The one of a task, which all processes of this machine share: the next removes what a killed one left."""
    workspaces = memory_directory(path)
    # It may be there, or come into being this moment.
    with contextlib.suppress(Conflict, RepositoryUnwritable):
        return Repository.create(path, workspaces=workspaces, bounds=CANDIDATE_BOUNDS)
    return Repository.open(path, workspaces=workspaces, bounds=CANDIDATE_BOUNDS)


def _slots(slots: Slots, node: NodeContext) -> Slots:
    """The cluster has given a node room for one measurement: GPUs by their names, or else as many CPUs as asked for."""
    if slots.kind == "gpu" and node.gpus:
        return replace(slots, names=(",".join(node.gpus),))
    return slots if slots.names else replace(slots, count=MOST_SLOTS)


_MOST_BENCHES = 4
_benches: OrderedDict[tuple[str, str, str], _Bench] = OrderedDict()


async def measure(wanted: Wanted, node: NodeContext) -> Measurement | Unmeasured:
    """What a node does. Raises `NodeUnfit`."""
    key = (wanted.task, wanted.meter, wanted.base)
    if key not in _benches:
        _benches[key] = await in_thread(lambda: _Bench(wanted, node))
        while len(_benches) > _MOST_BENCHES:
            _, oldest = _benches.popitem(last=False)
            await in_thread(oldest.repository.close)
    _benches.move_to_end(key)
    bench = _benches[key]
    commit = await in_thread(lambda: bench.commit(wanted))
    try:
        measured = await bench.meter.measure(commit, seed=wanted.seed, held_out=wanted.held_out)
    except Unmeasured as unmeasured:
        unmeasured.facts = {**unmeasured.facts, "node": node.name}
        return unmeasured
    return replace(measured, commit=wanted.commit, facts={**measured.facts, "node": node.name})
