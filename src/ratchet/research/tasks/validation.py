"""Whether a task makes sense as a whole, however it was described."""

from __future__ import annotations

import math
import re
import symtable
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ratchet.kernel import Direction, Misuse, is_name
from ratchet.research.adapter import FIXED_COLUMNS, MOST_SLOTS, Program, TaskAdapter, ToolCommand
from ratchet.research.decision.rule import check_rule
from ratchet.research.tasks.folder import check_layout, existing, read_plain, source_of
from ratchet.sandbox import Node

OWN_TOOLS = frozenset(
    {
        "syntax_check",
        "param_count",
        "diff_snapshots",
        "read_output",
        "read_snapshot",
        "rebase_to",
        "submit_trial",
        "read_lineage",
        "write_lesson",
    }
)
"""The tools that every session has; a task's own must be called otherwise."""

# Row 000 of every run is nobody's proposal.
_NOBODY = "baseline"
# What else an evaluator's answer may hold.
_ANSWER = frozenset({"invalid", "status", "measurements"})
_LARGEST_PROGRAM = 4_000_000


def check_task(task: TaskAdapter) -> None:
    """Raise `Misuse` that names what is wrong and where."""
    try:
        _check(task)
    except Misuse as error:
        raise Misuse(f"the task in {task.root}: {error}", hint=error.hint) from None


def _check(task: TaskAdapter) -> None:
    _check_kinds(task)
    _check_names(task)
    if not task.recipe:
        raise Misuse("there is no recipe", hint="say in [task] what may be edited: recipe = ['recipe.py']")
    _check_has_evaluator(task)
    check_layout(task)
    _check_programs(task)
    _check_score(task)
    _check_keep(task)
    _check_data(task)
    _check_numbers(task)
    for tool in task.tool_commands:
        _check_tool(task, tool)


def _check_kinds(task: TaskAdapter) -> None:
    """In Python a text in the place of a tuple is soon made, and is then read letter by letter."""
    for name in (
        "recipe",
        "output_dirs",
        "binary_files",
        "columns",
        "size_paths",
        "doers",
        "analysts",
        "tool_commands",
    ):
        if isinstance(getattr(task, name), str):
            raise Misuse(f"{name} is a text, not a tuple", hint=f"write {name} = ('…',)")
    if not isinstance(task.direction, Direction):
        raise Misuse(f"the direction is {task.direction!r}; it must be 'max' or 'min'")


def _check_names(task: TaskAdapter) -> None:
    if not task.name or not is_name(task.name):
        raise Misuse(
            f"the task is called {task.name!r}, which is no name",
            hint="give [task] a name of small letters, digits, dots, dashes and underscores",
        )
    if task.job_prefix and not re.fullmatch(r"[a-z][a-z0-9]{0,3}", task.job_prefix):
        raise Misuse(f"job_prefix is {task.job_prefix!r}; it must be up to 4 small letters and digits")
    if not task.doers:
        raise Misuse(
            "the roster is empty: there is no specialist to propose",
            hint="give it a [[specialist]] that is no analyst, or none at all for one generalist",
        )
    for specialist in task.roster:
        if not is_name(specialist.name) or specialist.name == _NOBODY:
            raise Misuse(
                f"a specialist is called {specialist.name!r}, which is no name for one",
                hint=f"use small letters, digits, dots, dashes and underscores; {_NOBODY!r} is taken",
            )
    _check_once("specialist", (each.name for each in task.roster))
    _check_once("tool", (each.name for each in task.tool_commands))
    _check_once("column", task.columns)
    _check_once("slot", task.slots.names)
    for name in task.environment:
        if name.startswith("RATCHET_"):
            raise Misuse(
                f"the environment sets {name}; names with RATCHET_ are Ratchet's own", hint="rename it"
            )


def _check_has_evaluator(task: TaskAdapter) -> None:
    evaluator = task.evaluator
    if not evaluator.argv and not evaluator.function:
        raise Misuse(
            "there is no evaluator, so nothing could be kept",
            hint="give [evaluator] a function and its file, or a command",
        )
    if evaluator.prepare and not evaluator.is_node:
        raise Misuse(
            f"the evaluator is a command, so {evaluator.prepare!r} cannot prepare questions",
            hint="make it a function, or remove prepare",
        )
    if task.trial is None and not evaluator.reads_candidate:
        raise Misuse(
            "there is no trial and the evaluator does not read the candidate, so it would see nothing of it",
            hint="add a [trial], or say reads_candidate = true",
        )
    if task.trial is None and task.processes_per_measurement != 1:
        raise Misuse("processes_per_measurement says how often a trial runs, but there is no trial")


def _check_programs(task: TaskAdapter) -> None:
    if task.trial is not None:
        _check_program("the trial", task.trial)
        if task.trial.is_node:
            source = source_of(task, task.trial.file)
            if source is None:
                raise Misuse(
                    f"the trial's file {task.trial.file!r} is neither part of the recipe nor a stage file"
                )
            _check_defines(source, task.trial.function)
    if task.apply is not None:
        _check_program("apply", task.apply)
        if task.trial is None or task.trial.is_node or task.apply.is_node:
            raise Misuse(
                "apply begins in what a trial has left, so both must be commands",
                hint="give [trial] and [apply] a command each",
            )
    _check_program("the evaluator", task.evaluator)
    if task.evaluator.image:
        raise Misuse("an evaluator cannot run in an image", hint="give it a python, or run the trial in one")
    if task.evaluator.is_node:
        path = f"{task.evaluator_dir}/{task.evaluator.file}"
        source = existing(task.root, path, "the evaluator's file")
        _check_defines(source, task.evaluator.function)
        if task.evaluator.prepare:
            _check_defines(source, task.evaluator.prepare)


def _check_program(what: str, program: Program) -> None:
    if program.argv and program.function:
        raise Misuse(f"{what} has both a function and a command", hint="remove one of them")
    if not program.argv and not program.function:
        raise Misuse(f"{what} has neither a function nor a command", hint="give it one of them")
    if program.argv and (program.file or program.modules):
        raise Misuse(f"{what} is a command, so file and modules mean nothing", hint="remove them")
    if program.is_node and (program.python or program.image or program.requires):
        raise Misuse(
            f"{what} is a function, so python, image and requires mean nothing", hint="make it a command"
        )
    if program.function:
        if not program.file:
            raise Misuse(f"{what} has the function {program.function!r}, but no file in which it lies")
        # It refuses names that Python does not have.
        Node("", program.function, program.modules)


def _check_defines(path: Path, name: str) -> None:
    """Raise `Misuse` for a file that is no Python, or that gives no meaning to `name`."""
    content = read_plain(path, _LARGEST_PROGRAM)
    try:
        text = content.decode()
        table = symtable.symtable(text, str(path), "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Misuse(f"{path} cannot be read as Python: {error}") from None
    known = {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}
    if name not in known and "import *" not in text:
        raise Misuse(f"{path} defines no {name!r}", hint="name a function that the file has at its top level")


def _check_score(task: TaskAdapter) -> None:
    for name in (task.score_field, *task.columns):
        if name in FIXED_COLUMNS | _ANSWER:
            raise Misuse(f"a score or a column cannot be called {name!r}", hint="that word is taken")
    if task.score_field in task.columns:
        raise Misuse(f"{task.score_field!r} is the score and need not be a column too")
    if task.size_paths and task.size_limit_bytes is None:
        raise Misuse("size.paths is given without size.limit_bytes", hint="say how large they may be")


def _check_keep(task: TaskAdapter) -> None:
    check_rule(task.keep)
    if task.held_out_inputs is not None and task.inputs is None:
        raise Misuse("held_out_inputs takes the place of inputs, but there are no inputs")
    if task.slots.kind not in ("cpu", "gpu"):
        raise Misuse(f"slots.kind is {task.slots.kind!r}; it must be 'cpu' or 'gpu'")
    if task.slots.kind == "gpu" and not task.slots.names:
        raise Misuse("slots.kind is 'gpu', but no GPU is named", hint="say slots.names = ['0']")
    if task.slots.count is not None and not 1 <= task.slots.count <= MOST_SLOTS:
        raise Misuse(f"slots.count is {task.slots.count}; it must be from 1 to {MOST_SLOTS}")
    if task.slots.names and task.slots.count is not None:
        raise Misuse("slots.names and slots.count are both given", hint="the names say how many there are")
    for name, _ in task.slots.devices:
        if task.slots.kind != "gpu" or name not in task.slots.names:
            raise Misuse(f"slots.devices names {name!r}, which is no GPU of slots.names")
    for name in task.slots.names if task.slots.kind == "cpu" else ():
        if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", name):
            raise Misuse(f"slots.names has {name!r}, which names no CPUs", hint="write them as '0' or '0-3'")


def _check_data(task: TaskAdapter) -> None:
    for source in task.data:
        what = f"the data {source.name}"
        if not source.path:
            raise Misuse(f"{what} has no path", hint="say where it lies: /a/path, ~/a/path, $VARIABLE/a/path")
        if source.pin not in ("hash", "stat"):
            raise Misuse(f"{what} has the pin {source.pin!r}; it must be 'hash' or 'stat'")
        for reader in source.readers:
            program = {"trial": task.trial, "apply": task.apply, "evaluator": task.evaluator}.get(reader)
            if program is None:
                raise Misuse(f"{what} is for {reader!r}, which this task does not have")
        if not source.readers:
            raise Misuse(f"{what} is for no reader", hint="name its readers: trial, apply, evaluator")
    _check_once("data", (each.name for each in task.data))


def _check_numbers(task: TaskAdapter) -> None:
    above_zero = {
        "max_trials": task.max_trials,
        "max_hours": task.max_hours,
        "hours_without_keep": task.hours_without_keep,
        "session_seconds": task.session_seconds,
        "trials_per_session": task.trials_per_session,
        "processes_per_measurement": task.processes_per_measurement,
        "size_limit_bytes": task.size_limit_bytes,
        "keep.baseline_repeats": task.keep.baseline_repeats,
    }
    for name, value in above_zero.items():
        if value is not None and not 0 < value < math.inf:
            raise Misuse(f"{name} is {value!r}; it must be above 0 and finite")
    if not 0 <= task.keep.held_out_tolerance < math.inf:
        raise Misuse(f"keep.held_out_tolerance is {task.keep.held_out_tolerance!r}; it must be 0 or more")
    if task.keep.seed < 0:
        raise Misuse(f"keep.seed is {task.keep.seed!r}; it must be 0 or more")
    if task.baseline_score is not None and not math.isfinite(task.baseline_score):
        raise Misuse(f"the score of the baseline is {task.baseline_score!r}; it must be finite")


def _check_tool(task: TaskAdapter, tool: ToolCommand) -> None:
    what = f"the tool {tool.name}"
    if tool.name in OWN_TOOLS:
        raise Misuse(f"{what} is called like one that every session has", hint="rename it")
    if not tool.description.strip():
        raise Misuse(f"{what} has no description, so no model could know what it is for")
    _check_program(what, tool.program)
    if tool.program.python or tool.program.image or tool.program.requires:
        raise Misuse(f"{what} runs with Ratchet's own Python", hint="remove python, image and requires")
    if tool.program.is_node:
        _check_defines(existing(task.root, tool.program.file, f"the file of {what}"), tool.program.function)
    if not tool.input_schema:
        return
    # Slow to import, and most tools take nothing.
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(tool.input_schema).check_schema(dict(tool.input_schema))
    except (SchemaError, RecursionError) as error:
        reason = error.message if isinstance(error, SchemaError) else "it is nested too deeply"
        raise Misuse(f"the input_schema of {what} is no JSON schema: {reason}") from None
    if tool.input_schema.get("type", "object") != "object":
        raise Misuse(f"the input_schema of {what} must be of type object, as all tools take named values")


def _check_once(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise Misuse(f"the {what} {name!r} is there {times} times", hint="give each a name of its own")
