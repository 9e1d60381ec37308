"""Where the parts of a task lie: all below its folder, none behind a link, and none within another's reach."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path, PurePosixPath

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.workspaces.names import split_path

OWN_FILES = ("task.toml", "task.py", "swarm_config.json")

_Named = tuple[str, str]
_ANYTHING = "file or directory"
_DIRECTORY = "directory"


def existing(root: Path, path: str, what: str, kind: str = "file") -> Path:
    """The path below `root`. Raises `Misuse`, which calls it `what`, when it is absent, leads out, or is a link."""
    here = root
    mode = 0
    for part in _parts(path, what):
        here /= part
        try:
            mode = here.lstat().st_mode
        except OSError as error:
            raise Misuse(f"{what} is {path!r}, but {here} cannot be found: {error.strerror}") from None
        if stat.S_ISLNK(mode):
            raise Misuse(
                f"{what} is {path!r}, but {here} is a symbolic link", hint="put a plain file in its place"
            )
    is_kind = {"file": stat.S_ISREG(mode), _DIRECTORY: stat.S_ISDIR(mode)}
    if not (any(is_kind.values()) if kind == _ANYTHING else is_kind[kind]):
        raise Misuse(f"{what} is {path!r}, which is not a {kind}")
    return here


def check_layout(task: TaskAdapter) -> None:
    """Raise `Misuse` for a path that cannot be, and for two that must not overlap."""
    _check_exists(task)
    for path in (*task.stage_files.values(), *task.output_dirs, *task.size_paths):
        _parts(path, "a path of the checkout")
    for one, other in _must_be_apart(task):
        _check_apart(*one, *other)
    for first, second in combinations(task.recipe, 2):
        _check_apart("the recipe", first, "the recipe", second)
    for first, second in combinations(task.stage_files.values(), 2):
        _check_apart("the place of a stage file", first, "the place of a stage file", second)
    _check_sizes(task)


def source_of(task: TaskAdapter, place: str) -> Path | None:
    """Where a file of the checkout comes from; `None` when it is no part of it."""
    for source, target in (*((path, path) for path in task.recipe), *task.stage_files.items()):
        if PurePosixPath(place).is_relative_to(target):
            return task.root / source / PurePosixPath(place).relative_to(target)
    return None


def _check_exists(task: TaskAdapter) -> None:
    for path in task.recipe:
        existing(task.root, path, "the recipe", _ANYTHING)
    for path in task.stage_files:
        existing(task.root, path, "a stage file", _ANYTHING)
    existing(task.root, task.evaluator_dir, "the evaluator's directory", _DIRECTORY)
    if task.inputs is not None:
        existing(task.root, task.inputs, "inputs", _DIRECTORY)
    if task.held_out_inputs is not None:
        existing(task.root, task.held_out_inputs, "held_out_inputs", _DIRECTORY)
    if task.knowledge_dir != TaskAdapter.knowledge_dir or (task.root / task.knowledge_dir).exists():
        existing(task.root, task.knowledge_dir, "knowledge", _DIRECTORY)


def _must_be_apart(task: TaskAdapter) -> Iterator[tuple[_Named, _Named]]:
    recipe = [("the recipe", path) for path in task.recipe]
    evaluator = ("the evaluator", task.evaluator_dir)
    inputs = [("inputs", task.inputs)] if task.inputs is not None else []
    held_out = [("held_out_inputs", task.held_out_inputs)] if task.held_out_inputs is not None else []
    stage = [("a stage file", path) for path in task.stage_files]
    places = [("the place of a stage file", path) for path in task.stage_files.values()]
    outputs = [("an output directory", path) for path in task.output_dirs]
    knowledge = ("knowledge", task.knowledge_dir)
    own = [("a file of Ratchet's own", path) for path in OWN_FILES]
    editable = (evaluator, knowledge, *inputs, *held_out, *stage, *places, *outputs, *own)
    yield from ((one, other) for one in recipe for other in editable)
    yield from ((evaluator, other) for other in (knowledge, *inputs, *held_out, *stage))
    yield from ((one, other) for one in held_out for other in (knowledge, *inputs, *stage))
    yield from ((one, other) for one in places for other in outputs)


def _check_apart(one: str, path: str, other: str, second: str) -> None:
    first, last = PurePosixPath(path), PurePosixPath(second)
    if first.is_relative_to(last) or last.is_relative_to(first):
        raise Misuse(
            f"{one} ({path}) and {other} ({second}) overlap",
            hint="give each of them a place of its own in the task's folder",
        )


def _check_sizes(task: TaskAdapter) -> None:
    staged = [PurePosixPath(path) for path in (*task.recipe, *task.stage_files.values())]
    for path in map(PurePosixPath, task.size_paths):
        if not any(path.is_relative_to(each) or each.is_relative_to(path) for each in staged):
            raise Misuse(
                f"size.paths has {str(path)!r}, which is no part of a candidate",
                hint="name paths of the recipe or of stage files",
            )


def _parts(path: str, what: str) -> list[str]:
    try:
        return split_path(path)
    except Misuse as error:
        raise Misuse(f"{what}: {error}", hint=error.hint) from None
