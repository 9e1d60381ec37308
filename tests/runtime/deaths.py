"""Places in the work of a process at which a test lets it die, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.runtime.kinds import mark


def die_at(home: Path, place: str, *, with_parent: bool = False) -> None:
    """`with_parent` is for the worker of a server, whose supervisor would start it again."""
    if with_parent:
        (home / "death of the parent").touch()
    (home / "death").write_text(place)


def places_passed(home: Path) -> list[str]:
    """Where it came by, in order."""
    path = home / "marks"
    return path.read_text().splitlines() if path.exists() else []


def pass_by(home: Path, place: str) -> None:
    mark(str(home / "marks"), place)
    death = home / "death"
    if death.exists() and death.read_text() == place:
        death.unlink()
        if (home / "death of the parent").exists():
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
