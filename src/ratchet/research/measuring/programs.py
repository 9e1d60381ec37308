"""A task's programs as judges run them, in one slot and on one split."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ratchet.judges import Evaluator, Pinned, Trial
from ratchet.judges.function import Function
from ratchet.research.adapter import Program, TaskAdapter
from ratchet.research.measuring.slots import Lease
from ratchet.sandbox import Bounds, Policy
from ratchet.sandbox.plan import is_shown

_SHIPPED = Path(__file__).parents[1] / "shipped"


class Programs:
    """The pinned directories of a task, and what may see them.

    `origin` is where the task came from. It and the tasks that come with Ratchet may lie among the packages of Python,
    which every trial can read: they are hidden from it.
    """

    def __init__(self, task: TaskAdapter, origin: Path | None = None) -> None:
        """Raises `Misuse` for a directory that is absent or holds links."""
        self.task = task
        self.evaluator_files = Pinned(task.root / task.evaluator_dir)
        self.inputs = None if task.inputs is None else Pinned(task.root / task.inputs)
        self.held_out_inputs = (
            None if task.held_out_inputs is None else Pinned(task.root / task.held_out_inputs)
        )
        places = (_SHIPPED, task.root.resolve(), *(() if origin is None else (origin.resolve(),)))
        self._hidden = tuple(dict.fromkeys(each for each in places if is_shown(each)))
        self.trial = lru_cache(maxsize=256)(self._trial)
        self.evaluator = lru_cache(maxsize=256)(self._evaluator)

    def pinned(self, *, held_out: bool) -> tuple[Pinned, ...]:
        """Everything that decides a score on one of the splits."""
        inputs = self._inputs(held_out)
        return (self.evaluator_files, *(() if inputs is None else (inputs,)))

    @property
    def prepare(self) -> Function | None:
        program = self.task.evaluator
        if not program.prepare:
            return None
        return Function(file=program.file, name=program.prepare, modules=program.modules)

    def _trial(self, lease: Lease, held_out: bool) -> Trial | None:
        program = self.task.trial
        if program is None:
            return None
        return Trial(
            argv=() if program.is_node else program.argv,
            function=_function(program),
            inputs=self._inputs(held_out),
            # A task that names directories for output has a program that writes beside the recipe.
            writes=bool(self.task.output_dirs) and not program.is_node,
            bounds=_bounds(program, lease),
            policy=self._policy(lease, self._hidden),
        )

    def _evaluator(self, lease: Lease, held_out: bool) -> Evaluator:
        program = self.task.evaluator
        own = self.evaluator_files.directory
        # Hidden from it too where that is possible, so that its nodes can have the same parents as the trial's.
        hidden = tuple(each for each in self._hidden if not own.is_relative_to(each))
        return Evaluator(
            pinned=self.evaluator_files,
            argv=() if program.is_node else program.argv,
            function=_function(program),
            inputs=self._inputs(held_out),
            reads_candidate=program.reads_candidate or self.task.trial is None,
            score_field=self.task.score_field,
            bounds=_bounds(program, lease),
            policy=self._policy(lease, hidden),
        )

    def _inputs(self, held_out: bool) -> Pinned | None:
        return self.held_out_inputs or self.inputs if held_out else self.inputs

    def _policy(self, lease: Lease, hidden: tuple[Path, ...]) -> Policy:
        return Policy(hidden=hidden, environment={**self.task.environment, **lease.environment})


def _function(program: Program) -> Function | None:
    if not program.is_node:
        return None
    return Function(file=program.file, name=program.function, modules=program.modules)


def _bounds(program: Program, lease: Lease) -> Bounds:
    return replace(program.bounds, cpus=lease.cpus) if lease.cpus else program.bounds
