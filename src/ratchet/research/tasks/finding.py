"""Which tasks there are, and how one is found by what a person calls it."""

from __future__ import annotations

import copy
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ratchet.config.sources import most_like
from ratchet.kernel import Misuse, NotFound, RatchetError
from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks import code, reading
from ratchet.research.tasks.checking import check_task
from ratchet.research.tasks.reading import read_task

GROUP = "ratchet.tasks"


def task_names() -> list[str]:
    """The tasks that are installed, Ratchet's own and those of other packages."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_task(reference: str, variant: str | None = None) -> TaskAdapter:
    """The task that `reference` names: a folder, or an installed task. `name:variant` names one of its variants.

    What has a slash in it, or is a directory with a task, is a folder. Raises `Misuse` when there is none.
    """
    plain, chosen = _split(reference, variant)
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
            hint="mend or uninstall the package that brings it",
        ) from error
    if isinstance(found, Path):
        return read_task(found, variant)
    if isinstance(found, type) and issubclass(found, TaskAdapter):
        found = code.make(found, {"name": name}, where)
    if not isinstance(found, TaskAdapter):
        raise RatchetError(
            f"{where} is {type(found).__name__}, and neither a folder nor a TaskAdapter",
            hint="mend or uninstall the package that brings it",
        )
    if variant is not None:
        raise Misuse(f"the task {name} has no variant {variant!r}: only a task.toml describes variants")
    return _completed(found, name, root or found.root)


def _completed(task: TaskAdapter, name: str, root: Path) -> TaskAdapter:
    task = copy.copy(task)
    task.root = root.resolve()
    task.entry_point = name
    check_task(task)
    return task


def _split(reference: str, variant: str | None) -> tuple[str, str | None]:
    if Path(reference).is_dir() or ":" not in reference:
        return reference, variant
    return _variant_of(reference, variant)


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
    described = reading.is_there(path / reading.FILE_NAME) or reading.is_there(path / code.FILE_NAME)
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
