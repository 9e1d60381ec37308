"""From the tables of a task.toml to what a `TaskAdapter` is made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Direction, Misuse
from ratchet.research.adapter import (
    EvaluatorProgram,
    KeepRule,
    Program,
    Slots,
    Specialist,
    ToolCommand,
)
from ratchet.research.tasks.folder import read_plain
from ratchet.research.tasks.layout import existing
from ratchet.research.tasks.tables import (
    EvaluatorTable,
    KeepTable,
    ProgramTable,
    SpecialistTable,
    Tables,
    ToolTable,
)
from ratchet.sandbox import Bounds

if TYPE_CHECKING:
    from ratchet.research.tasks.swarm import Swarm

_LARGEST_PREAMBLE = 100_000


def facts(tables: Tables, root: Path, swarm: Swarm) -> dict[str, Any]:
    """The values of the adapter's attributes. Those that nobody named are left to their defaults."""
    task, prompt = tables.task, tables.prompt
    roster = _roster(tables.specialist, root, swarm)
    if prompt.knowledge is not None:
        existing(root, prompt.knowledge, "knowledge", "directory")
    said = {
        "name": task.name,
        "root": root,
        "description": task.description,
        "recipe": tuple(task.recipe),
        "stage_files": task.stage_files,
        "output_dirs": tuple(task.output_dirs),
        "inputs": task.inputs,
        "held_out_inputs": task.held_out_inputs,
        "environment": task.environment,
        "job_prefix": task.job_prefix,
        "known_best": task.known_best,
        "plain_baseline": task.plain_baseline,
        "score_field": tables.score.field,
        "score_label": tables.score.label,
        "direction": Direction(tables.score.direction),
        "columns": tuple(tables.score.columns),
        "keep": _keep(tables.keep, task.held_out_inputs),
        "slots": Slots(kind=tables.slots.kind, names=tuple(tables.slots.names), count=tables.slots.count),
        "size_limit_bytes": tables.size.limit_bytes,
        "size_paths": tuple(tables.size.paths),
        "baseline_score": tables.baseline.score,
        "requires_calibrated_baseline": tables.baseline.requires_calibration,
        "bootstrap_hypothesis": tables.baseline.hypothesis,
        "baseline_note": tables.baseline.note,
        "max_trials": tables.stops.trials,
        "max_hours": tables.stops.hours,
        "hours_without_keep": tables.stops.hours_without_keep,
        "session_seconds": tables.sessions.seconds,
        "trials_per_session": tables.sessions.trials,
        "rules": prompt.rules,
        "limits": prompt.limits,
        "keep_semantics": prompt.keep_semantics,
        "knowledge_dir": prompt.knowledge,
        "doers": _chosen(roster, analysts=False),
        "analysts": _chosen(roster, analysts=True),
        "tool_commands": tuple(_tool(each) for each in tables.tool),
        **_programs(tables),
    }
    return {name: value for name, value in said.items() if value is not None}


def _programs(tables: Tables) -> dict[str, Any]:
    trial = tables.trial
    evaluator = tables.evaluator or EvaluatorTable()
    return {
        "trial": None if trial is None else Program(**_program(trial)),
        "processes_per_measurement": None if trial is None else trial.processes_per_measurement,
        "evaluator_dir": evaluator.directory,
        "evaluator": EvaluatorProgram(
            **_program(evaluator),
            prepare=evaluator.prepare or "",
            # Without a trial there is nothing else that it could look at.
            reads_candidate=trial is None if evaluator.reads_candidate is None else evaluator.reads_candidate,
        ),
    }


def _program(table: ProgramTable) -> dict[str, Any]:
    return {
        "argv": tuple(table.command or ()),
        "file": table.file or "",
        "function": table.function or "",
        "modules": tuple(table.modules),
        "bounds": _bounds(table),
    }


def _bounds(table: ProgramTable) -> Bounds:
    given: Mapping[str, Any] = {
        "wall_seconds": table.seconds,
        "cpu_seconds": table.cpu_seconds,
        "memory_bytes": table.memory_mb and table.memory_mb * 1024**2,
        "processes": table.processes,
        "output_bytes": table.output_kb and table.output_kb * 1024,
        "file_bytes": table.file_mb and table.file_mb * 1024**2,
    }
    return Bounds(**{name: value for name, value in given.items() if value is not None})


def _keep(table: KeepTable, held_out_inputs: str | None) -> KeepRule:
    held_out = held_out_inputs is not None if table.held_out is None else table.held_out
    return KeepRule(**table.model_dump() | {"held_out": held_out})


def _roster(
    specialists: Sequence[SpecialistTable] | None, root: Path, swarm: Swarm
) -> list[Specialist] | None:
    if specialists is None:
        return [swarm.apply(Specialist(name="generalist"), None)]
    return [swarm.apply(_specialist(each, root), each.priority) for each in specialists]


def _specialist(table: SpecialistTable, root: Path) -> Specialist:
    if table.name is None:
        raise Misuse(f"a [[specialist]] of the task in {root} has no name", hint="give each of them a name")
    return Specialist(
        name=table.name,
        preamble=_preamble(table, root),
        domain=table.domain,
        analyst=table.analyst,
        engine=table.engine,
        model=table.model,
    )


def _preamble(table: SpecialistTable, root: Path) -> str:
    if table.preamble_file is None:
        return table.preamble or ""
    if table.preamble is not None:
        raise Misuse(
            f"the specialist {table.name} has both a preamble and a preamble_file", hint="remove one of them"
        )
    path = existing(root, table.preamble_file, f"the preamble_file of {table.name}")
    try:
        return read_plain(path, _LARGEST_PREAMBLE).decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _chosen(roster: Sequence[Specialist] | None, *, analysts: bool) -> tuple[Specialist, ...]:
    return tuple(each for each in roster or () if each.analyst is analysts)


def _tool(table: ToolTable) -> ToolCommand:
    if table.name is None:
        raise Misuse("a [[tool]] has no name", hint="give each of them a name and a description")
    return ToolCommand(
        name=table.name,
        description=table.description,
        program=Program(**_program(table)),
        input_schema=table.input_schema,
    )
