"""The recipe as it lies in a session's workspace, read by us although somebody else wrote it.

No link is followed and nothing but regular files is opened: what a session puts there must not make this process read
the files of the machine to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measuring.recipe import Recipe

_FILES = 2000
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
    if not plain or not Recipe(task.recipe).covers(str(place)):
        raise Misuse(
            f"{path[:200]!r} is no path of the recipe", hint=f"the recipe is {', '.join(task.recipe)}"
        )
    return str(place)


def list_recipe(task: TaskAdapter, directory: Path) -> list[RecipeFile]:
    """The files of the recipe, in order."""
    found = [RecipeFile(path, status.st_size) for path, status, _, _ in _files(task, directory)]
    return sorted(found, key=lambda each: each.path)


def read_recipe(task: TaskAdapter, directory: Path, suffix: str) -> dict[str, bytes]:
    """The content of the files with this ending. Raises `Misuse` when there is too much of it."""
    contents: dict[str, bytes] = {}
    left = _BYTES
    for path, _, parent, name in _files(task, directory):
        if not path.endswith(suffix):
            continue
        with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                continue
            contents[path] = file.read(left + 1)
        left -= len(contents[path])
        if left < 0 or len(contents) > _FILES:
            raise Misuse(
                f"the recipe has more than {_FILES} {suffix} files, or more than {_BYTES} bytes of them",
                hint="this tool cannot look at so much",
            )
    return contents


def _files(task: TaskAdapter, directory: Path) -> Iterator[_Found]:
    """Each regular file of the recipe; nothing else of the directory is looked at."""
    top = os.open(directory, _DIRECTORY)
    try:
        for path in task.recipe:
            yield from _below(top, path)
    finally:
        os.close(top)


def _below(directory: int, path: str, above: str = "") -> Iterator[_Found]:
    name, _, rest = path.partition("/")
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if rest and stat.S_ISDIR(status.st_mode):
        inner = os.open(name, _DIRECTORY, dir_fd=directory)
        try:
            yield from _below(inner, rest, f"{above}{name}/")
        finally:
            os.close(inner)
    elif not rest and stat.S_ISREG(status.st_mode):
        yield f"{above}{name}", status, directory, name
    elif not rest and stat.S_ISDIR(status.st_mode):
        yield from _within(directory, name, above)


def _within(directory: int, name: str, above: str) -> Iterator[_Found]:
    for top, names, files, parent in os.fwalk(name, dir_fd=directory, follow_symlinks=False):
        names.sort()
        for each in files:
            status = os.stat(each, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield f"{above}{top}/{each}", status, parent, each
