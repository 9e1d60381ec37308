"""Putting files of one commit back into a copy of another, whatever stands in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ratchet.kernel import RatchetError
from ratchet.workspaces import Change, Repository
from ratchet.workspaces.trees import PROGRAM


class CannotRestore(RatchetError):
    """A file of the base is no plain file, so it cannot be put back safely."""


def restore(repository: Repository, base: str, changes: Sequence[Change], directory: Path) -> None:
    """Undo `changes` in `directory`. Nothing is written through a link: what is in the way is removed."""
    for change in changes:
        _clear(directory, change.path)
        if change.before is None:
            continue
        if not change.before.is_file:
            raise CannotRestore(
                f"{change.path} of {base[:12]} is a link or another repository, so it cannot be put back"
            )
        target = directory / change.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(repository.read_file(base, change.path))
        target.chmod(0o755 if change.before.mode == PROGRAM else 0o644)


def _clear(directory: Path, path: str) -> None:
    """Remove whatever is at `path`, and anything on the way to it that is no real directory."""
    place = directory
    parts = path.split("/")
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
            return
    target = directory / path
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    elif os.path.lexists(target):
        target.unlink()
