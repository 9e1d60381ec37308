"""A run's own copy of its task, so that editing the original changes nothing.

The copy appears whole or not at all: it is made beside its place and then renamed. What a killed process left is
removed by the next one that comes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.judges.fingerprint import Unpinnable, fingerprint, tree_hash
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError
from ratchet.ledger.files import sync_file_system
from ratchet.research.tasks.finding import installed_task
from ratchet.research.tasks.folder import SKIPPED, Room, open_plain, plain_files, read_plain
from ratchet.research.tasks.reading import read_task
from ratchet.workspaces.removal import remove_tree

if TYPE_CHECKING:
    from ratchet.research.adapter import TaskAdapter

_COPY = "task"
_RECORD = "pinned.json"
_UNFINISHED = ".task-"
_LARGEST_RECORD = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Pin:
    """What the copy was when it was made. It is written before the copy gets its name."""

    sha256: str
    entry_point: str


def task_hash(task: TaskAdapter) -> str:
    """A SHA-256 over all that the task's folder holds, the same for the folder and for a copy of it.

    Of a task whose code is installed it knows the name only.
    """
    return _hash(task.root, task.entry_point, without=SKIPPED)


def pin_task(task: TaskAdapter, directory: Path, *, sha256: str | None = None) -> TaskAdapter:
    """Copy the task's folder into `directory`, and return the task as it is there.

    A copy that is there already stays: a run began with it. Raises `Misuse` for a folder that holds links, and
    `Conflict` when the copy is not what `sha256` says.
    """
    _check_outside(task.root, directory)
    with _writing(directory), _locked(directory):
        if not (directory / _COPY).exists():
            for left in directory.glob(f"{_UNFINISHED}*"):
                remove_tree(left)
            _copy(task, directory, sha256)
    pinned = pinned_task(directory, task.variant)
    if sha256 not in (None, pinned.sha256):
        raise _changed(pinned.root, f"its hash is {pinned.sha256}, not {sha256}")
    return pinned


def pinned_task(directory: Path, variant: str | None = None) -> TaskAdapter:
    """Open the copy in `directory` again. Raises `NotFound` without one and `Conflict` when it is not what it was."""
    root = directory / _COPY
    if not root.is_dir():
        raise NotFound("pinned task", root)
    pin = _read_pin(directory / _RECORD)
    try:
        found = _hash(root, pin.entry_point)
    except Misuse as error:
        raise _changed(root, str(error)) from None
    if found != pin.sha256:
        raise _changed(root, f"its hash is {found}, not {pin.sha256}")
    task = _opened(pin, root, variant)
    task.sha256 = pin.sha256
    return task


def _opened(pin: _Pin, root: Path, variant: str | None) -> TaskAdapter:
    if pin.entry_point:
        return installed_task(pin.entry_point, variant, root=root)
    return read_task(root, variant)


def _hash(root: Path, entry_point: str, *, without: Set[str] = frozenset()) -> str:
    try:
        return fingerprint("task 1", files=tree_hash(root, without=without), entry_point=entry_point)
    except Unpinnable as error:
        raise Misuse(str(error), hint="put a plain file in its place") from None
    except OSError as error:
        raise Misuse(f"{error.filename or root} cannot be read: {error.strerror}") from error


def _copy(task: TaskAdapter, directory: Path, wanted: str | None) -> None:
    unfinished = directory / f"{_UNFINISHED}{secrets.token_hex(4)}"
    try:
        unfinished.mkdir()
        for each in plain_files(task.root, Room()):
            target = unfinished / each.place
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_plain(each.path) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o755 if each.executable else 0o644)
        pin = _Pin(_hash(unfinished, task.entry_point), task.entry_point)
        if wanted not in (None, pin.sha256):
            raise Conflict(
                f"{task.root} was changed while it was copied", hint="start again when nobody edits it"
            )
        # A kill from here on leaves a record without a copy, and the next process writes both again.
        record = unfinished.with_name(f"{unfinished.name}.json")
        record.write_text(json.dumps(asdict(pin)))
        sync_file_system(directory)
        record.replace(directory / _RECORD)
        unfinished.rename(directory / _COPY)
        sync_file_system(directory)
    finally:
        remove_tree(unfinished)


def _read_pin(path: Path) -> _Pin:
    try:
        said = strict_json(read_plain(path, _LARGEST_RECORD), str(path))
        return _Pin(said["sha256"], said["entry_point"])
    except (Misuse, BadReport, KeyError, TypeError) as error:
        raise _changed(path, f"{type(error).__name__}: {error}") from None


def _changed(path: Path, how: str) -> Conflict:
    return Conflict(
        f"{path} is not what the run began with: {how}",
        hint="a run keeps the task that it began with; start another run for a changed one",
    )


def _check_outside(root: Path, directory: Path) -> None:
    """A copy inside of what is copied would never end, and would hold other runs."""
    place = directory.resolve()
    if place.is_relative_to(root) and not SKIPPED.intersection(place.relative_to(root).parts):
        raise Misuse(
            f"the run's directory {place} lies in the task's folder {root}",
            hint="set RATCHET_HOME to a directory outside of it",
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds off others that would pin here, so that an unfinished copy that is found is nobody's. Ends with us."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RatchetError(
            f"the task cannot be copied to {directory}: {error.strerror}",
            hint="see that the disk has room and that the directory can be written",
        ) from error
