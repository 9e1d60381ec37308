"""A fresh checkout for one measurement: the commit, with the task's own files over it."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.judges.scratch import in_thread
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measuring.recipe import Recipe
from ratchet.research.tasks.initial import initial_files
from ratchet.research.tasks.layout import source_of
from ratchet.workspaces import Kind, Repository, Workspace
from ratchet.workspaces.fill import parent_of
from ratchet.workspaces.ground import opened_root, writing
from ratchet.workspaces.removal import remove_at

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of the task that lies beside the recipe, as it was when the meter was made."""

    content: bytes = field(repr=False)
    mode: int


def staged_files(task: TaskAdapter) -> dict[str, Staged]:
    """The stage files by their place. Raises `Misuse` for one that cannot be read."""
    recipe = Recipe(task.recipe)
    return {
        place: Staged(content, _mode(source_of(task, place)))
        for place, content in (initial_files(task).items() if task.stage_files else ())
        if not recipe.covers(place)
    }


@asynccontextmanager
async def fresh_checkout(
    repository: Repository, commit: str, staged: Mapping[str, Staged], kind: Kind | None
) -> AsyncIterator[Path]:
    """A directory that nobody has written to but us; gone afterwards."""
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
    kind: Kind | None,
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
