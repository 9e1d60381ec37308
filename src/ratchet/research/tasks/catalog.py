"""Which tasks there are, a new one to begin with, and a run's own copy, which edits of the original do not change.

The copy appears whole or not at all: it is made beside its place and then renamed. What a killed process left is
removed by the next one that comes.
"""

from __future__ import annotations

import copy
import json
import secrets
import shutil
import tarfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import IO, BinaryIO, cast

from ratchet.config.sources import most_like
from ratchet.files import locked_directory
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import Conflict, Direction, Misuse, NotFound, RatchetError, fingerprint, is_name
from ratchet.operations import filled
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks.folder import SKIPPED, FolderLimits, open_plain, plain_files, read_plain
from ratchet.research.tasks.reader import CODE_NAME, FILE_NAME, is_there, make, read_task
from ratchet.research.tasks.validation import check_task
from ratchet.workspaces.directories import Unpinnable, remove_tree, tree_hash
from ratchet.workspaces.trees import split_path

_TEMPLATE = Path(__file__).parent / "template"
_NAME = b"NAME_OF_THE_TASK"


def scaffold(name: str, directory: Path) -> Path:
    """Make the task `name` as a folder of that name in `directory`. It appears whole or not at all.

    Raises `Misuse` for a bad name and `Conflict` when something of that name is there.
    """
    if not is_name(name):
        raise Misuse(
            f"a task cannot be called {name!r}",
            hint="use small letters, digits, dots, dashes and underscores",
        )
    folder = directory / name
    if folder.exists() or folder.is_symlink():
        raise Conflict(f"{folder} exists already", hint="choose another name, or remove it first")
    unfinished = directory / f".{name}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for each in plain_files(_TEMPLATE, FolderLimits()):
            target = unfinished / each.place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(each.path.read_bytes().replace(_NAME, name.encode()))
        unfinished.rename(folder)
    except OSError as error:
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        remove_tree(unfinished)
    return folder


GROUP = "ratchet.tasks"


def task_names() -> list[str]:
    """The tasks that are installed, Ratchet's own and those of other packages."""
    return sorted({point.name for point in entry_points(group=GROUP)})


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """An installed task. One that cannot be loaded has a `problem` and nothing else."""

    name: str
    kind: str | None = None
    description: str = ""
    score_field: str | None = None
    direction: Direction | None = None
    specialists: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    known_best: str = ""
    plain_baseline: str = ""
    path: str | None = None
    problem: str | None = None


def installed_tasks() -> list[TaskAnswer]:
    """Every installed task, by name."""
    return list(map(_described, task_names()))


def _described(name: str) -> TaskAnswer:
    try:
        task = installed_task(name)
    except RatchetError as error:
        # The others can still be used.
        return TaskAnswer(name, problem=str(error))
    roster = tuple(each.name for each in task.roster)
    own = {"name": name, "kind": _kind(task), "specialists": roster, "variants": tuple(task.variants)}
    return filled(TaskAnswer, task, **own, path=str(task.root), problem=None)


def _kind(task: TaskAdapter) -> str:
    if task.trial is None:
        return "read"
    return "function" if task.trial.is_node else "command"


def find_task(reference: str, variant: str | None = None) -> TaskAdapter:
    """The task that `reference` names: a folder, or an installed task. `name:variant` names one of its variants.

    What has a slash in it, or is a directory with a task, is a folder. Raises `Misuse` when there is none.
    """
    split = ":" in reference and not Path(reference).is_dir()
    plain, chosen = _variant_of(reference, variant) if split else (reference, variant)
    if not plain:
        raise Misuse("no task is named", hint=_installed_hint())
    if _is_folder(plain):
        if not Path(plain).is_dir():
            raise Misuse(f"there is no directory {plain!r}", hint="`ratchet research new NAME` makes a task")
        return read_task(Path(plain), chosen)
    return installed_task(plain, chosen)


def find_installed(reference: str, variant: str | None = None) -> TaskAdapter:
    """The installed task that `reference` names and never a folder: for those who may not name the disk's paths.

    Raises `Misuse` for what looks like a path, and `NotFound` when no such task is installed.
    """
    plain, chosen = _variant_of(reference, variant) if ":" in reference else (reference, variant)
    if "/" in plain or plain in ("", ".", ".."):
        raise Misuse(
            f"{plain!r} is not the name of an installed task, and only those can be named here",
            hint=_names_hint(),
        )
    if plain not in task_names():
        missing = NotFound("installed task", plain)
        missing.hint = _names_hint()
        raise missing
    return installed_task(plain, chosen)


def installed_task(name: str, variant: str | None = None, *, root: Path | None = None) -> TaskAdapter:
    """The task of an entry point, which is a `TaskAdapter`, a subclass, or a function that returns one or a folder.

    `root` is where a task that is made by code finds its files, if not where it says itself.
    """
    point = _entry_point(name)
    where = f"the entry point {point.name} = {point.value}"
    try:
        found = point.load()
        if not isinstance(found, type) and callable(found):
            found = found()
    except (Exception, SystemExit) as error:
        raise RatchetError(
            f"the task {name!r} of {point.value} cannot be loaded: {type(error).__name__}: {error}",
            hint="fix or uninstall the package that brings it",
        ) from error
    if isinstance(found, Path):
        return read_task(found, variant)
    if isinstance(found, type) and issubclass(found, TaskAdapter):
        found = make(found, {"name": name}, where)
    if not isinstance(found, TaskAdapter):
        raise RatchetError(
            f"{where} is {type(found).__name__}, and neither a folder nor a TaskAdapter",
            hint="fix or uninstall the package that brings it",
        )
    if variant is not None:
        raise Misuse(f"the task {name} has no variant {variant!r}: only a task.toml describes variants")
    task = copy.copy(found)
    task.root = (root or found.root).resolve()
    task.entry_point = name
    check_task(task)
    return task


def _variant_of(reference: str, variant: str | None) -> tuple[str, str]:
    plain, _, named = reference.rpartition(":")
    if not named or (variant is not None and variant != named):
        raise Misuse(
            f"{reference!r} names {f'the variant {named!r}' if named else 'no variant'} behind its colon"
            + (f", and the variant {variant!r} is asked for" if variant is not None else ""),
            hint="name one variant, as in circle_packing:single",
        )
    return plain, named


def _is_folder(plain: str) -> bool:
    path = Path(plain)
    described = is_there(path / FILE_NAME) or is_there(path / CODE_NAME)
    return "/" in plain or plain in (".", "..") or described


def _entry_point(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise Misuse(f"there is no task {name!r}", hint=_installed_hint(name))
    if len(found) > 1:
        raise Misuse(
            f"{len(found)} packages bring a task {name!r}: {', '.join(sorted(found))}",
            hint="uninstall one of them, or name the folder of the task",
        )
    return next(iter(found.values()))


def _names_hint() -> str:
    return f"there are {', '.join(task_names()) or 'none'}"


def _installed_hint(name: str = "") -> str:
    names = task_names()
    if not names:
        return "give the path of a task's folder; none is installed"
    [like] = most_like((name,), ((each,) for each in names))
    nearest = f"the nearest is {like}; " if name else ""
    return f"{nearest}there are {', '.join(names)}, and ./FOLDER for one of your own"


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
    with _writing(directory), locked_directory(directory):
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
    name = pin.entry_point
    task = installed_task(name, variant, root=root) if name else read_task(root, variant)
    task.sha256 = pin.sha256
    return task


def write_task(directory: Path, out: BinaryIO) -> None:
    """Write the copy in `directory` as one file, the same for the same task."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, place, mode in (
            (directory / _RECORD, _RECORD, 0o644),
            *(
                (each.path, f"{_COPY}/{each.place}", 0o755 if each.executable else 0o644)
                for each in plain_files(directory / _COPY, FolderLimits())
            ),
        ):
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode = path.stat().st_size, mode
            with open_plain(path) as file:
                archive.addfile(entry, file)


def read_in_task(directory: Path, source: BinaryIO) -> None:
    """Put a copy into `directory` that `write_task` wrote elsewhere. One that is there already stays."""
    from ratchet.files import sync_file_system  # as above

    with _writing(directory), locked_directory(directory):
        if (directory / _COPY).exists():
            return
        unfinished = directory / f"{_UNFINISHED}{secrets.token_hex(4)}"
        try:
            # One by one: not every Python 3.11 can be told to leave out what may lead elsewhere.
            with tarfile.open(fileobj=source, mode="r:") as archive:
                for entry in filter(tarfile.TarInfo.isreg, archive):
                    target = unfinished.joinpath(*split_path(entry.name))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as file:
                        shutil.copyfileobj(cast("IO[bytes]", archive.extractfile(entry)), file)
                    target.chmod(entry.mode & 0o755)
            sync_file_system(directory)
            (unfinished / _RECORD).replace(directory / _RECORD)
            (unfinished / _COPY).rename(directory / _COPY)
            sync_file_system(directory)
        finally:
            remove_tree(unfinished)


def _hash(root: Path, entry_point: str, *, without: Set[str] = frozenset()) -> str:
    try:
        return fingerprint("task 1", files=tree_hash(root, without=without), entry_point=entry_point)
    except Unpinnable as error:
        raise Misuse(str(error), hint="put a plain file in its place") from None
    except OSError as error:
        raise Misuse(f"{error.filename or root} cannot be read: {error.strerror}") from error


def _copy(task: TaskAdapter, directory: Path, wanted: str | None) -> None:
    from ratchet.files import sync_file_system  # only a run needs the ledger, not a list of tasks

    unfinished = directory / f"{_UNFINISHED}{secrets.token_hex(4)}"
    try:
        unfinished.mkdir()
        for each in plain_files(task.root, FolderLimits()):
            target = unfinished / each.place
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_plain(each.path) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o755 if each.executable else 0o644)
        pin = _Pin(_hash(unfinished, task.entry_point), task.entry_point)
        if wanted not in (None, pin.sha256):
            raise Conflict(
                f"{task.root} was changed while it was copied", hint="start again when it is not being edited"
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
def _writing(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RatchetError(
            f"the task cannot be copied to {directory}: {error.strerror}",
            hint="see that the disk has room and that the directory can be written",
        ) from error
