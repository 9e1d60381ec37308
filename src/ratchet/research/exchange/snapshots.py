"""Recipes that a state directory has kept, made into commits.

A kept trial has a directory of its own; any trial may have its recipe's main file under snapshots/all. The directory is
foreign: links are not followed, and a snapshot that leaves its place or is too large is left out and remarked.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ratchet.kernel import Misuse
from ratchet.research.exchange.files import RESULTS, SNAPSHOTS, read_bytes
from ratchet.research.exchange.remarks import Remarks
from ratchet.research.exchange.rows import Row
from ratchet.research.exchange.state import Imported
from ratchet.workspaces import Repository, UnsafePath

BEST = "refs/heads/best"
_ALL = "all"
_MOST_FILES = 2000
_MOST_BYTES = 64 * 1024 * 1024
_MOST_DEPTH = 20
# What an evaluation left behind, and helpers that are nobody's recipe.
_OUTPUTS = frozenset({"eval", "__pycache__"})
_HELPERS = frozenset({"pack_submission.py"})
_DEFAULT = "recipe.py"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where the recipe of a trial lies: a directory, or the main file alone."""

    path: Path
    whole: bool


def find_snapshots(imported: Imported, remarks: Remarks) -> dict[int, Snapshot]:
    """The snapshots that are there, by the number of their trial."""
    root = imported.blackboard / SNAPSHOTS
    if root.is_symlink() or not root.is_dir():
        return {}
    found: dict[int, Snapshot] = {}
    for row in imported.rows:
        named = imported.layout.cell(row.cells, "snapshot_path")
        alone = root / _ALL / f"{row.exp_id}.py"
        if named and not _is_plain(named):
            remarks.warn(RESULTS, f"its snapshot_path {named[:80]!r} leads elsewhere", row.line, row.exp_id)
        elif named and _is_directory(imported.blackboard, PurePosixPath(named)):
            found[row.number] = Snapshot(imported.blackboard / named, whole=True)
        if row.number not in found and _is_directory(root, PurePosixPath(_ALL)) and os.path.lexists(alone):
            found[row.number] = Snapshot(alone, whole=False)
    return found


def commit_snapshots(
    repository: Repository, imported: Imported, found: Mapping[int, Snapshot], remarks: Remarks
) -> dict[int, str]:
    """A commit for each snapshot, on top of that of its nearest ancestor that has one; their hashes by number.

    Each has a ref below refs/trials, and refs/heads/best is at the last that was kept.
    """
    recipe = _recipe_name(found)
    rows = {row.number: row for row in imported.rows}
    commits: dict[int, str] = {}
    for number in sorted(found):
        row = rows[number]
        parent = _ancestor(row, rows, commits)
        try:
            files = _files(found[number], recipe)
            hash_ = _commit(repository, row, files, parent, whole=found[number].whole)
        except (Misuse, UnsafePath, OSError) as error:
            remarks.warn(SNAPSHOTS, f"its snapshot was left out: {error}", exp_id=row.exp_id)
            continue
        repository.advance(f"refs/trials/{row.exp_id}", hash_, expected=None)
        commits[number] = hash_
    best = imported.best_row
    if best is not None and best.number in commits:
        repository.advance(BEST, commits[best.number], expected=None)
    return commits


def _commit(
    repository: Repository, row: Row, files: Mapping[str, bytes], parent: str | None, *, whole: bool
) -> str:
    gone = [path for path in repository.list_files(parent) if path not in files] if parent and whole else []
    return repository.commit_files(
        {**files, **dict.fromkeys(gone)},
        parent=parent,
        message=f"{row.exp_id} {row.status}: {row.hypothesis}",
        # The same snapshot gives the same commit, whenever it is imported.
        at=(row.at or 0) // 1000,
    )


def _ancestor(row: Row, rows: Mapping[int, Row], commits: Mapping[int, str]) -> str | None:
    """The commit of the nearest ancestor that has one. Parents come before their children, so this ends."""
    above = row
    while above.parent is not None and above.parent < above.number and above.parent in rows:
        above = rows[above.parent]
        if above.number in commits:
            return commits[above.number]
    return None


def _recipe_name(found: Mapping[int, Snapshot]) -> str:
    """What the main file is called: the Python file that most snapshots have at their top."""
    names: Counter[str] = Counter()
    for snapshot in found.values():
        if snapshot.whole:
            with os.scandir(snapshot.path) as entries:
                names.update(
                    each.name
                    for each in entries
                    if each.name.endswith(".py")
                    and not each.name.endswith("_packed.py")
                    and each.name not in _HELPERS
                )
    return min(names, key=lambda name: (-names[name], name)) if names else _DEFAULT


def _files(snapshot: Snapshot, recipe: str) -> dict[str, bytes]:
    """The content of a snapshot. Raises `Misuse` or `OSError`."""
    if not snapshot.whole:
        return {recipe: read_bytes(snapshot.path, _MOST_BYTES)}
    files: dict[str, bytes] = {}
    left = _MOST_BYTES
    for path in _walk(snapshot.path, 0):
        if len(files) == _MOST_FILES:
            raise Misuse(f"it has more than {_MOST_FILES} files")
        content = read_bytes(path, left)
        left -= len(content)
        files[path.relative_to(snapshot.path).as_posix()] = content
    if not files:
        raise Misuse("it is empty")
    return files


def _walk(directory: Path, depth: int) -> Iterator[Path]:
    if depth > _MOST_DEPTH:
        raise Misuse(f"it is more than {_MOST_DEPTH} directories deep")
    with os.scandir(directory) as listing:
        entries = sorted(listing, key=lambda each: each.name)
    for each in entries:
        if each.is_symlink():
            raise Misuse(f"{each.name!r} in it is a symbolic link")
        if not each.is_dir():
            yield Path(each.path)
        elif each.name not in _OUTPUTS:
            yield from _walk(Path(each.path), depth + 1)


def _is_plain(named: str) -> bool:
    parts = named.split("/")
    return parts[0] == SNAPSHOTS and len(parts) > 1 and not {"", ".", ".."} & set(parts)


def _is_directory(root: Path, below: PurePosixPath) -> bool:
    """Whether this is a directory that no link leads to or out of."""
    at = root
    for part in below.parts:
        at /= part
        if at.is_symlink() or not at.is_dir():
            return False
    return True
