"""Where one demo keeps what is its own: a numbered directory, which one process at a time works in.

A demo that was cut off is taken up by the next one, where it stopped. One that has ended is left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOLDER, _REPORTS = "demo", "reports"
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of demo `number`. `taken_up` says that an earlier process began it."""

    home: Path
    number: int
    taken_up: bool

    @property
    def directory(self) -> Path:
        return self.home / _FOLDER / str(self.number)

    @property
    def report(self) -> Path:
        return self.home / _REPORTS / f"demo-{self.number}.html"

    def name(self, what: str) -> str:
        """A name that no other demo of this home uses."""
        return f"demo-{self.number}-{what}"

    def end(self) -> None:
        """Leave it alone from now on, however it ended."""
        (self.directory / _ENDED).touch()


@contextlib.contextmanager
def claim(home: Path) -> Iterator[Place]:
    """A place that nobody else works in until the block ends: the newest that was cut off, or a new one."""
    root = home / _FOLDER
    root.mkdir(parents=True, exist_ok=True)
    numbers = sorted((int(each.name) for each in root.iterdir() if each.name.isdecimal()), reverse=True)
    for number in numbers:
        with _held(root / str(number)) as held:
            if held and not (root / str(number) / _ENDED).exists():
                yield Place(home, number, taken_up=True)
                return
    number = numbers[0] if numbers else 0
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            (root / str(number)).mkdir()
            with _held(root / str(number)) as held:
                if held:
                    yield Place(home, number, taken_up=False)
                    return


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[bool]:
    """Whether the directory is ours until the block ends. A process that dies gives it back."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
