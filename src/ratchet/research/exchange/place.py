"""The place of an export: files that appear when all of them are complete."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ratchet.kernel import Conflict, Misuse

_UNFINISHED = ".{name}.unfinished"


class Unfinished:
    """A directory in which files are written until they are complete."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[TextIO]:
        """A new file, on disk when the block ends."""
        with (self.path / name).open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def unfinished(directory: Path, names: Sequence[str], *, overwrite: bool) -> Iterator[Unfinished]:
    """A directory beside `directory` that takes its place when the block ends well.

    One that a dead process left is used again. With `overwrite`, the files called `names` of a directory that is not
    empty are replaced or, when they were not written, removed; whatever else is in it stays.
    """
    place = directory.resolve()
    _check(place, overwrite=overwrite)
    with _explained(place):
        path = place.with_name(_UNFINISHED.format(name=place.name))
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(path)
            try:
                yield Unfinished(path)
                os.fsync(descriptor)
                _put(path, place, names, overwrite=overwrite)
            finally:
                _clear(path)
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir()
        except BlockingIOError as error:
            raise Conflict(
                f"another export to {place} is going on", hint="wait until it has ended"
            ) from error
        finally:
            os.close(descriptor)


def _check(place: Path, *, overwrite: bool) -> None:
    if place.exists() and not place.is_dir():
        raise Misuse(f"{place} is not a directory", hint="name a directory that is new or empty")
    if not place.name:
        raise Misuse(f"{place} cannot be replaced", hint="name a directory that is new or empty")
    if not overwrite and place.is_dir() and any(place.iterdir()):
        raise Conflict(
            f"{place} is not empty", hint="name a directory that is new or empty, or allow overwriting"
        )


def _put(path: Path, place: Path, names: Sequence[str], *, overwrite: bool) -> None:
    if not overwrite or not place.is_dir() or not any(place.iterdir()):
        path.rename(place)
        return
    for name in names:
        if (path / name).exists():
            (path / name).replace(place / name)
        else:
            (place / name).unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Remove the files that were begun. Nobody but an export writes in a directory of this name."""
    with contextlib.suppress(FileNotFoundError):
        for file in path.iterdir():
            file.unlink()


@contextlib.contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Misuse(
            f"{place} cannot be written: {error.strerror or error}",
            hint="name a directory that is new or empty, on a disk with room",
        ) from error
