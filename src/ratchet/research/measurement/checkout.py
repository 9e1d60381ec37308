"""A fresh checkout for one measurement, the programs that run in it, and which of its files are the recipe."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ratchet.files import remove_at
from ratchet.judges import Evaluator, EvaluatorTrial, Pinned
from ratchet.judges.scratch import Function, in_thread
from ratchet.kernel import Misuse
from ratchet.research.adapter import Program, TaskAdapter
from ratchet.research.measurement.machine import Machine, PinnedData
from ratchet.research.measurement.slots import Lease
from ratchet.research.tasks.folder import initial_files, source_of
from ratchet.sandbox import Bounds
from ratchet.sandbox.policy import is_shown
from ratchet.workspaces import Repository, TreeEntry, Workspace, WorkspaceKind
from ratchet.workspaces.files import parent_of
from ratchet.workspaces.trees import TreeBounds, TreeChange, is_litter
from ratchet.workspaces.workspace import opened_root, writing

_SHIPPED = Path(__file__).parents[1] / "shipped"
CANDIDATE_BOUNDS = TreeBounds(without_litter=True)
"""Of every commit that a candidate is: bytecode, caches and files of editors are never part of it."""


class TaskPrograms:
    """The pinned directories of a task, and what may see them.

    `origin` is where the task came from. It and the tasks that come with Ratchet may lie among the packages of Python,
    which every trial can read: they are hidden from it.
    """

    def __init__(self, task: TaskAdapter, machine: Machine, origin: Path | None = None) -> None:
        """Raises `Misuse` for a directory that is absent or holds links."""
        self.task = task
        self._machine = machine
        self.evaluator_files = Pinned(task.root / task.evaluator_dir)
        self.inputs = None if task.inputs is None else Pinned(task.root / task.inputs)
        self.held_out_inputs = (
            None if task.held_out_inputs is None else Pinned(task.root / task.held_out_inputs)
        )
        places = (_SHIPPED, task.root.resolve(), *(() if origin is None else (origin.resolve(),)))
        self._hidden = tuple(dict.fromkeys(each for each in places if is_shown(each)))
        self.trial = lru_cache(maxsize=256)(self._trial)
        self.apply = lru_cache(maxsize=256)(self._apply)
        self.evaluator = lru_cache(maxsize=256)(self._evaluator)

    def pinned(self, *, held_out: bool) -> tuple[Pinned | PinnedData, ...]:
        """Everything that decides a score on one of the splits."""
        inputs = self._inputs(held_out)
        return (self.evaluator_files, *(() if inputs is None else (inputs,)), *self._machine.pinned())

    @property
    def prepare(self) -> Function | None:
        program = self.task.evaluator
        if not program.prepare:
            return None
        return Function(file=program.file, name=program.prepare, modules=program.modules)

    def _trial(self, lease: Lease, held_out: bool) -> EvaluatorTrial | None:
        program = self.task.trial
        if program is None:
            return None
        return EvaluatorTrial(
            argv=() if program.is_node else program.argv,
            function=_function(program),
            inputs=self._inputs(held_out),
            # A task that names directories for output has a program that writes beside the recipe.
            writes=bool(self.task.output_dirs) and not program.is_node,
            python=self._machine.python(program),
            bounds=_bounds(program, lease),
            policy=self._machine.policy("trial", program, lease, self._hidden),
        )

    def _apply(self, lease: Lease) -> EvaluatorTrial | None:
        """The program that begins in what the trial has left."""
        program = self.task.apply
        if program is None:
            return None
        return EvaluatorTrial(
            argv=program.argv,
            python=self._machine.python(program),
            bounds=_bounds(program, lease),
            policy=self._machine.policy("apply", program, lease, self._hidden),
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
            python=self._machine.python(program),
            bounds=_bounds(program, lease),
            policy=self._machine.policy("evaluator", program, lease, hidden),
        )

    def _inputs(self, held_out: bool) -> Pinned | None:
        return self.held_out_inputs or self.inputs if held_out else self.inputs


def _function(program: Program) -> Function | None:
    if not program.is_node:
        return None
    return Function(file=program.file, name=program.function, modules=program.modules)


def _bounds(program: Program, lease: Lease) -> Bounds:
    return replace(program.bounds, cpus=lease.cpus) if lease.cpus else program.bounds


@dataclass(frozen=True, slots=True)
class RecipePaths:
    """Files and directories that may be edited, as the task names them."""

    paths: tuple[str, ...]

    def covers(self, path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in self.paths)

    def within(self, files: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
        return {path: entry for path, entry in files.items() if self.covers(path)}

    def file(self, name: str, roots: Sequence[str] = ()) -> str | None:
        """The path in the recipe of what a traceback calls `name`; `None` for another file.

        `roots` are the directories in which the recipe was seen.
        """
        for root in roots:
            name = name.removeprefix(f"{root}/")
        path = posixpath.normpath(name)
        return path if self.covers(path) else None


# What Python runs when it starts, or when it finds it among its packages, without anybody importing it.
_STARTED = ("sitecustomize.py", "usercustomize.py", "pyvenv.cfg")


@dataclass(frozen=True, slots=True)
class CandidateFiles:
    """What a task lets a candidate be made of: the files of its recipe, all of them plain and to be read."""

    task: TaskAdapter

    def strays(self, changes: Iterable[TreeChange], read: Callable[[str], bytes]) -> list[str]:
        """Each changed file that no candidate may have, with the reason. `read` gives the content of a path."""
        found = ((change.path, self._why(change, read)) for change in changes)
        return [f"{path} {why}" for path, why in found if why is not None]

    def _why(self, change: TreeChange, read: Callable[[str], bytes]) -> str | None:
        path, name = change.path, change.path.rpartition("/")[2]
        if any(map(is_litter, path.split("/"))):
            return None if change.after is None else "is left behind by a tool and never part of a candidate"
        if not RecipePaths(self.task.recipe).covers(path):
            return "is no part of the recipe"
        if change.after is None:
            return None
        if not change.after.is_file:
            return "is a link and no plain file"
        if name in _STARTED or name.endswith(".pth"):
            return "would be run by Python itself, without being imported"
        # A source that is no text does not compile, which is said of it with its line.
        if name.endswith(".py") or any(fnmatchcase(path, each) for each in self.task.binary_files):
            return None
        return (
            "is binary, and the task names no such file in binary_files" if _is_binary(read(path)) else None
        )


def _is_binary(content: bytes) -> bool:
    try:
        return "\0" in content.decode()
    except UnicodeDecodeError:
        return True


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of the task that lies beside the recipe, as it was when the meter was made."""

    content: bytes = field(repr=False)
    mode: int


def staged_files(task: TaskAdapter) -> dict[str, Staged]:
    """The stage files by their place. Raises `Misuse` for one that cannot be read."""
    recipe = RecipePaths(task.recipe)
    return {
        place: Staged(content, _mode(source_of(task, place)))
        for place, content in (initial_files(task).items() if task.stage_files else ())
        if not recipe.covers(place)
    }


@asynccontextmanager
async def fresh_checkout(
    repository: Repository, commit: str, staged: Mapping[str, Staged], kind: WorkspaceKind | None
) -> AsyncIterator[Path]:
    """A directory that only Ratchet writes to; gone afterwards."""
    made: list[Workspace] = []
    try:
        await in_thread(lambda: _make(made, repository, commit, staged, kind))
        yield made[0].path
    finally:
        # Also when it was cancelled while it was made.
        for workspace in made:
            await in_thread(workspace.discard)


def _make(
    made: list[Workspace],
    repository: Repository,
    commit: str,
    staged: Mapping[str, Staged],
    kind: WorkspaceKind | None,
) -> None:
    made.append(repository.workspace(commit, kind=kind, name="measured"))
    with writing(made[0].path), opened_root(made[0].path) as root:
        for place, file in staged.items():
            _put(root, place, file)


def _put(root: int, place: str, file: Staged) -> None:
    """Write a file to its place, whatever the candidate has put there. Raises `UnsafePath` if it lies behind a link."""
    with parent_of(root, place, make=True) as (parent, name):
        remove_at(name, parent)
        descriptor = os.open(name, _NEW_FILE, file.mode, dir_fd=parent)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(file.content)


def _mode(source: Path | None) -> int:
    runs = source is not None and source.stat().st_mode & stat.S_IXUSR
    return 0o755 if runs else 0o644


_MOST_FILES = 2000
_BYTES = 8 * 1024 * 1024
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_Found = tuple[str, os.stat_result, int, str]
"""The path of a file and its state, the open directory that it is in and its name there."""


@dataclass(frozen=True, slots=True)
class RecipeFile:
    path: str
    size: int


def recipe_path(task: TaskAdapter, path: str) -> str:
    """A path below the recipe as a model wrote it. Raises `Misuse` for any other."""
    place = PurePosixPath(path)
    plain = not place.is_absolute() and ".." not in place.parts and "\\" not in path and "\0" not in path
    repository = any(part.lower() == ".git" for part in place.parts)
    if not plain or repository or not RecipePaths(task.recipe).covers(str(place)):
        raise Misuse(
            f"{path[:200]!r} is no path of the recipe", hint=f"the recipe is {', '.join(task.recipe)}"
        )
    return str(place)


def recipe_patterns(task: TaskAdapter, directory: Path) -> list[str]:
    """What matches the recipe's files in a checkout."""
    return [f"{path}/*" if (directory / path).is_dir() else path for path in task.recipe]


def list_recipe(task: TaskAdapter, directory: Path) -> list[RecipeFile]:
    """The files of the recipe, in order."""
    found = [RecipeFile(path, status.st_size) for path, status, _, _ in _recipe_files(task, directory)]
    return sorted(found, key=lambda each: each.path)


def read_recipe(task: TaskAdapter, directory: Path, suffix: str) -> dict[str, bytes]:
    """The content of the files with this ending. Raises `Misuse` when there is too much of it."""
    contents: dict[str, bytes] = {}
    left = _BYTES
    for path, _, parent, name in _recipe_files(task, directory):
        if not path.endswith(suffix):
            continue
        with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                continue
            contents[path] = file.read(left + 1)
        left -= len(contents[path])
        if left < 0 or len(contents) > _MOST_FILES:
            raise Misuse(
                f"the recipe has more than {_MOST_FILES} {suffix} files, or more than {_BYTES} bytes of them",
                hint="this tool cannot look at so much",
            )
    return contents


def _recipe_files(task: TaskAdapter, directory: Path) -> Iterator[_Found]:
    """Each regular file of the recipe; nothing else of the directory is looked at."""
    top = os.open(directory, _DIRECTORY)
    try:
        for path in task.recipe:
            yield from _files_below(top, path)
    finally:
        os.close(top)


def _files_below(directory: int, path: str, above: str = "") -> Iterator[_Found]:
    name, _, rest = path.partition("/")
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if rest and stat.S_ISDIR(status.st_mode):
        inner = os.open(name, _DIRECTORY, dir_fd=directory)
        try:
            yield from _files_below(inner, rest, f"{above}{name}/")
        finally:
            os.close(inner)
    elif not rest and stat.S_ISREG(status.st_mode):
        yield f"{above}{name}", status, directory, name
    elif not rest and stat.S_ISDIR(status.st_mode):
        yield from _files_within(directory, name, above)


def _files_within(directory: int, name: str, above: str) -> Iterator[_Found]:
    for top, names, files, parent in os.fwalk(name, dir_fd=directory, follow_symlinks=False):
        names[:] = sorted(each for each in names if not is_litter(each))
        for each in files:
            if is_litter(each):
                continue
            status = os.stat(each, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield f"{above}{top}/{each}", status, parent, each
