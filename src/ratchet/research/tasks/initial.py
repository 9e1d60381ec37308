"""What a run begins with: the recipe and what lies beside it."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.kernel import Misuse
from ratchet.research.tasks.folder import Room, plain_files, read_plain

if TYPE_CHECKING:
    from ratchet.research.adapter import TaskAdapter

_ROOM = Room(files=20_000, file_bytes=32 * 1024**2, total_bytes=256 * 1024**2)


def initial_files(task: TaskAdapter) -> Mapping[str, bytes]:
    """The files of a run's first commit, by their place in it. Raises `Misuse` for links, too much, or no recipe."""
    recipe = dict(_files(task, {path: path for path in task.recipe}))
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
