"""The plain files of a task's folder, within bounds; where its parts lie; what a run begins with."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.workspaces.trees import is_litter, split_path, unwanted_name

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


def initial_files(task: TaskAdapter) -> Mapping[str, bytes]:
    """The files of a run's first commit, by their place in it. Raises `Misuse` for links, too much, or no recipe."""
    recipe = {
        place: content
        for place, content in _files(task, {path: path for path in task.recipe})
        if not any(map(is_litter, place.split("/")))
    }
    if not recipe:
        raise Misuse(
            f"the recipe of {task.name} ({', '.join(task.recipe)}) holds no file",
            hint="put the program to be improved there",
        )
    found = {**recipe, **dict(_files(task, task.stage_files))}
    total = sum(map(len, found.values()))
    if len(found) > _ROOM.files or total > _ROOM.total_bytes:
        raise Misuse(
            f"the recipe and the stage files of {task.name} are {len(found):,} files of {total:,} bytes;"
            f" {_ROOM.files:,} files of {_ROOM.total_bytes:,} bytes are the most",
            hint="put data into inputs, which is not committed",
        )
    return found


def _files(task: TaskAdapter, places: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    for source, place in places.items():
        path = task.root / source
        if stat.S_ISDIR(_mode(path)):
            for each in plain_files(path, _ROOM):
                yield f"{place}/{each.place}", read_plain(each.path, _ROOM.file_bytes)
        else:
            yield place, read_plain(path, _ROOM.file_bytes)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}") from error


# What tools leave behind, and Ratchet's own home when somebody works inside the folder.
SKIPPED = frozenset({".git", ".ratchet", "__pycache__"})
_DEEPEST = 50
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """How much a folder may hold."""

    files: int = 100_000
    file_bytes: int = 4 * 1024**3
    total_bytes: int = 16 * 1024**3


_ROOM = FolderLimits(files=20_000, file_bytes=32 * 1024**2, total_bytes=256 * 1024**2)


@dataclass(frozen=True, slots=True)
class PlainFile:
    """`place` is its path below the folder, with slashes."""

    path: Path
    place: str
    size: int
    executable: bool


def plain_files(folder: Path, room: FolderLimits) -> list[PlainFile]:
    """All files below `folder`, sorted. Raises `Misuse` for a link, a pipe, a name no tree can have, or too much."""
    try:
        return _within(room, folder, _walk(folder, ()))
    except OSError as error:
        raise Misuse(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def read_plain(path: Path, most_bytes: int) -> bytes:
    """The content of a file. Raises `Misuse` when it is none, is a link, or is too large."""
    try:
        with open_plain(path) as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise Misuse(f"{path} is larger than {most_bytes:,} bytes")
    return content


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read it. Raises `OSError` for a link, and `Misuse` for what is no file."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Misuse(f"{path} is not a plain file", hint="put a readable regular file there")
    return os.fdopen(descriptor, "rb")


def _within(room: FolderLimits, folder: Path, files: Iterator[PlainFile]) -> list[PlainFile]:
    found: list[PlainFile] = []
    total = 0
    for each in files:
        found.append(each)
        total += each.size
        if len(found) > room.files:
            raise Misuse(f"{folder} holds more than {room.files:,} files", hint="keep data elsewhere")
        if each.size > room.file_bytes or total > room.total_bytes:
            raise Misuse(
                f"{each.path} is too much: a file may have {room.file_bytes:,} bytes, all together"
                f" {room.total_bytes:,}",
                hint="keep large data elsewhere",
            )
    return found


def _walk(folder: Path, parts: tuple[str, ...]) -> Iterator[PlainFile]:
    if len(parts) > _DEEPEST:
        raise Misuse(f"{folder} is nested more than {_DEEPEST} directories deep")
    for path in sorted(folder.iterdir()):
        if path.name in SKIPPED:
            continue
        reason = unwanted_name(path.name)
        if reason is not None:
            raise Misuse(f"{str(path)!r} {reason}", hint="rename it")
        entry = path.lstat()
        here = (*parts, path.name)
        if stat.S_ISDIR(entry.st_mode):
            yield from _walk(path, here)
        elif stat.S_ISREG(entry.st_mode):
            yield PlainFile(path, "/".join(here), entry.st_size, bool(entry.st_mode & stat.S_IXUSR))
        else:
            kind = "a symbolic link" if stat.S_ISLNK(entry.st_mode) else "neither a file nor a directory"
            raise Misuse(f"{path} is {kind}", hint="put a plain file in its place")
