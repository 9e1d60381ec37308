"""A task from its folder: task.toml, task.py, its variants."""

from __future__ import annotations

import hashlib
import inspect
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ratchet.kernel import Direction, Misuse, PlacementChoice, RatchetError
from ratchet.research.adapter import (
    DataSource,
    EvaluatorProgram,
    KeepRule,
    Program,
    Slots,
    Specialist,
    TaskAdapter,
    ToolCommand,
)
from ratchet.research.tasks.folder import existing, read_plain
from ratchet.research.tasks.tables import (
    SWARM_NAME,
    ApplyTable,
    CommandTable,
    EvaluatorTable,
    KeepTable,
    ProgramTable,
    SlotsTable,
    SpecialistTable,
    Tables,
    TaskFile,
    TomlTable,
    ToolTable,
    read_swarm,
)
from ratchet.research.tasks.validation import check_task
from ratchet.sandbox import Bounds

if TYPE_CHECKING:
    from ratchet.research.tasks.tables import Swarm


CODE_NAME = "task.py"
_LARGEST_CODE = 4_000_000


def load_class(path: Path) -> type[TaskAdapter]:
    """The one subclass of `TaskAdapter` that the file defines. Raises `Misuse` when it breaks, or has none or several.

    It is compiled again each time and leaves no bytecode behind, so that a copy of its folder stays what it was.
    """
    content = read_plain(path, _LARGEST_CODE)
    module = ModuleType(f"ratchet_task_{hashlib.sha256(bytes(path) + b' ' + content).hexdigest()[:16]}")
    module.__file__ = str(path)
    # Dataclasses look their own module up by its name.
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _broken(path, error) from error
    found: list[type[TaskAdapter]] = [
        each for each in vars(module).values() if _is_own(each, module.__name__)
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise Misuse(
            f"{path} must define one subclass of TaskAdapter, and it defines {names}",
            hint="write `class MyTask(TaskAdapter):` from ratchet.research.adapter",
        )
    return found[0]


def make(kind: type[TaskAdapter], given: Mapping[str, Any], where: str) -> TaskAdapter:
    """A task of this class. What the class says in its body is stronger than what is given."""
    names = {each.name for each in fields(TaskAdapter)}
    above = kind.__mro__[: kind.__mro__.index(TaskAdapter)]
    said = {name: value for each in reversed(above) for name, value in vars(each).items() if name in names}
    for name, value in said.items():
        if isinstance(value, property) or inspect.isroutine(value):
            raise Misuse(
                f"{kind.__name__} in {where} makes {name} a property or method, but it is a fact",
                hint=f"write `{name} = …` in the class body",
            )
    try:
        return kind(**{**given, **said})
    except (Exception, SystemExit) as error:
        raise _broken(where, error) from error


def _is_own(value: object, module: str) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, TaskAdapter)
        and value.__module__ == module
        and not inspect.isabstract(value)
    )


def _broken(where: object, error: BaseException) -> RatchetError:
    if isinstance(error, RatchetError):
        return error
    return Misuse(f"{where} cannot be loaded: {type(error).__name__}: {error}", hint="fix it and try again")


_PROGRAMS = ("trial", "apply", "evaluator")
_AS_FUNCTION = ("function", "file", "modules", "prepare")
_AS_COMMAND = ("command", "python", "image", "requires")


def varied(found: Mapping[str, Any], variant: str | None, path: Path) -> dict[str, Any]:
    """The tables of a variant, or of the task itself. Several are joined by +, and each changes what those before it
    made. Tables are merged, lists are replaced, and so is the roster.

    A variant that runs something as a command where the task calls a function, or the other way round, replaces how it
    is run and keeps its limits.
    """
    plain = {name: value for name, value in found.items() if name != "variants"}
    if variant is None:
        return plain
    known = found.get("variants", {})
    for name in variant.split("+"):
        if name not in known:
            names = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise Misuse(f"{path} has no variant {name!r}; {names}", hint="leave the variant out")
        plain = _with_variant(plain, name, known[name], path)
    return plain


def _with_variant(plain: dict[str, Any], variant: str, says: Mapping[str, Any], path: Path) -> dict[str, Any]:
    if "agents" in says and "specialist" in says:
        raise Misuse(
            f"the variant {variant!r} of {path} has both agents and specialists",
            hint="give either a number of generic agents or the specialists by name",
        )
    for name in _PROGRAMS:
        if name in plain and name in says:
            plain[name] = _without_other_way(plain[name], says[name])
    roster = {"specialist": generic_agents(says["agents"])} if says.get("agents") else {}
    return _merged(plain, {**{name: value for name, value in says.items() if name != "agents"}, **roster})


def generic_agents(number: int) -> list[dict[str, Any]]:
    """So many specialists that differ in nothing but their names."""
    width = max(2, len(str(number)))
    return [{"name": f"agent-{each:0{width}}"} for each in range(1, number + 1)]


def _without_other_way(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    gone = _AS_FUNCTION if "command" in over else _AS_COMMAND if "function" in over else ()
    return {key: value for key, value in table.items() if key not in gone}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            result[name] = _merged(under, value)
        else:
            result[name] = value
    return result


_LARGEST_PREAMBLE = 100_000


# Trials of a session where the task does not say how many, and one takes a few seconds.
_CHEAP = 3


def facts(tables: Tables, root: Path, swarm: Swarm) -> dict[str, Any]:
    """The values of the adapter's attributes. Those that were not named are left to their defaults."""
    task, prompt = tables.task, tables.prompt
    roster = _roster(tables.specialist, root, swarm)
    if prompt.knowledge is not None:
        existing(root, prompt.knowledge, "knowledge", "directory")
    said = {
        **_values(task),
        **_values(prompt, knowledge="knowledge_dir"),
        **_values(tables.score, field="score_field", label="score_label"),
        **_values(tables.size, limit_bytes="size_limit_bytes", paths="size_paths"),
        **_values(tables.stops, trials="max_trials", hours="max_hours"),
        **_values(tables.sessions, seconds="session_seconds", trials="trials_per_session"),
        "trials_when_cheap": _CHEAP if tables.sessions.trials is None else tables.sessions.trials,
        "root": root,
        "direction": Direction(tables.score.direction),
        "keep": _keep(tables.keep, task.held_out_inputs),
        "slots": _slots(tables.slots),
        "placement": PlacementChoice(**dict(tables.placement)),
        "data": tuple(DataSource(name=name, **_values(table)) for name, table in tables.data.items()),
        "baseline_score": tables.baseline.score,
        "requires_calibrated_baseline": tables.baseline.requires_calibration,
        "bootstrap_hypothesis": tables.baseline.hypothesis,
        "baseline_note": tables.baseline.note,
        "doers": _chosen(roster, analysts=False),
        "analysts": _chosen(roster, analysts=True),
        "tool_commands": tuple(_tool(each) for each in tables.tool),
        **_programs(tables),
    }
    return {name: value for name, value in said.items() if value is not None}


def _values(table: TomlTable, **renamed: str) -> dict[str, Any]:
    """What a table says by the names of the adapter's attributes, which are its own where none is given."""
    return {
        renamed.get(name, name): tuple(value) if isinstance(value, list) else value for name, value in table
    }


def _slots(table: SlotsTable) -> Slots:
    nodes = tuple((name, tuple(paths)) for name, paths in table.devices.items())
    return Slots(kind=table.kind, names=tuple(table.names), count=table.count, devices=nodes)


def _programs(tables: Tables) -> dict[str, Any]:
    trial = tables.trial
    evaluator = tables.evaluator or EvaluatorTable()
    return {
        "trial": None if trial is None else Program(**_program(trial)),
        "processes_per_measurement": None if trial is None else trial.processes_per_measurement,
        "apply": None if tables.apply is None else Program(**_program(tables.apply)),
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
        **_surroundings(table),
        "bounds": _bounds(table),
    }


def _surroundings(table: ProgramTable) -> dict[str, Any]:
    if not isinstance(table, CommandTable):
        return {}
    image = table.image if isinstance(table, ApplyTable) else None
    return {"python": table.python or "", "image": image or "", "requires": tuple(table.requires)}


def _bounds(table: ProgramTable) -> Bounds:
    shared = table.shared_memory_mb if isinstance(table, CommandTable) else None
    given: Mapping[str, Any] = {
        "wall_seconds": table.seconds,
        "cpu_seconds": table.cpu_seconds,
        "memory_bytes": table.memory_mb and table.memory_mb * 1024**2,
        "processes": table.processes,
        "output_bytes": table.output_kb and table.output_kb * 1024,
        "file_bytes": table.file_mb and table.file_mb * 1024**2,
        "shared_memory_bytes": shared and shared * 1024**2,
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
    own = table.model_dump(exclude={"preamble_file", "priority"})
    return Specialist(**own | {"preamble": _preamble(table, root)})


def _preamble(table: SpecialistTable, root: Path) -> str:
    if table.preamble_file is None:
        return table.preamble or ""
    if table.preamble is not None:
        raise Misuse(
            f"the specialist {table.name} has both a preamble and a preamble_file", hint="remove one of them"
        )
    path = existing(root, table.preamble_file, f"the preamble_file of {table.name}")
    return _text(path, _LARGEST_PREAMBLE)


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


FILE_NAME = "task.toml"
_LARGEST = 1024 * 1024


def read_task(folder: Path, variant: str | None = None) -> TaskAdapter:
    """The task that a folder describes in task.toml, in task.py, or in both. Raises `Misuse`.

    A task.py is run in this process with the rights of the process that reads the task.
    """
    root = folder.resolve()
    has_toml, has_code = is_there(root / FILE_NAME), is_there(root / CODE_NAME)
    if not has_toml and not has_code:
        raise Misuse(
            f"{folder} is no task: it has neither a {FILE_NAME} nor a {CODE_NAME}",
            hint="`ratchet research new NAME` makes a folder that is one",
        )
    if not has_toml and variant is not None:
        raise Misuse(f"{folder} has no variant {variant!r}: variants are described in a {FILE_NAME}")
    given = _described(root, variant) if has_toml else {"name": root.name, "root": root}
    kind = load_class(root / CODE_NAME) if has_code else TaskAdapter
    task = make(kind, given, str(root / CODE_NAME))
    if not has_toml:
        _apply_swarm(task, root)
    check_task(task)
    return task


def _apply_swarm(task: TaskAdapter, root: Path) -> None:
    """Models and priorities for a task that is all Python; where there is a task.toml, it was read with that."""
    swarm = read_swarm(root)
    swarm.check_names((each.name for each in task.roster), root / SWARM_NAME)
    task.doers, task.analysts = (
        tuple(swarm.apply(each, each.priority or None) for each in part)
        for part in (task.doers, task.analysts)
    )


def is_there(path: Path) -> bool:
    """Also as a link that leads nowhere: it is told of, rather than passed over."""
    return path.exists() or path.is_symlink()


def _described(root: Path, variant: str | None) -> dict[str, Any]:
    path = root / FILE_NAME
    text = _text(path, _LARGEST)
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise Misuse(f"{path} is not valid TOML: {error}") from None
    try:
        whole = TaskFile.model_validate(found)
    except ValidationError as error:
        # Loaded here: it knows every setting there is.
        from ratchet.research.tasks.tables import explain

        # Not chained: the library's own text says less.
        raise explain(error, path, text, found) from None
    merged = varied(found, variant, path)
    swarm = read_swarm(root)
    swarm.check_names(_everybody(whole), root / SWARM_NAME)
    given = facts(Tables.model_validate(merged), root, swarm)
    # A task without a name is told so when all of it is checked.
    return {"name": "", **given, "variant": variant, "variants": tuple(whole.variants)}


def _everybody(whole: TaskFile) -> set[str]:
    """The names in all rosters: a file about all variants may name those of any."""
    names = {"generalist"}
    for each in (whole, *whole.variants.values()):
        names |= {specialist.name for specialist in each.specialist or () if specialist.name}
    for variant in whole.variants.values():
        names |= {agent["name"] for agent in generic_agents(variant.agents or 0)}
    return names


def _text(path: Path, most_bytes: int) -> str:
    try:
        return read_plain(path, most_bytes).decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
