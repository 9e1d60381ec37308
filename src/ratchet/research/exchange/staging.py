"""Repositories of runs that are being imported.

A repository is complete before the ledger says that its run exists, and gets the run's place right after. A process
that dies in between leaves it under a name of its own; the next import gives it its place, or removes it when its run
was never recorded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ratchet.kernel import Conflict, NotFound, new_id
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.workspaces.removal import remove_tree

_PREFIX = ".import-"
_LOCK = ".imports.lock"
_RUN = "run"


class Stage:
    """A directory of one import. `name` goes into the run's spec, by which the two are known to belong together."""

    def __init__(self, research: Path) -> None:
        self.name = new_id(_PREFIX.rstrip("-"))
        self.path = research / self.name
        self.recorded = False

    @property
    def repository(self) -> Path:
        return self.path / "repo.git"

    def give_to(self, run_id: int) -> None:
        """Note whose it is, before that run is committed."""
        if self.path.is_dir():
            (self.path / _RUN).write_text(str(run_id))

    def put_in_place(self, run_id: int) -> None:
        """Give it to the run for good, once that is committed. Raises `Conflict`; it stays where it is then."""
        self.recorded = True
        if self.path.is_dir():
            _put_in_place(self.path, run_id)


@contextlib.contextmanager
def staged(ledger: Ledger, home: Path) -> Iterator[Stage]:
    """A stage for one import, removed at the end unless its run was recorded."""
    research = home / "research"
    research.mkdir(parents=True, exist_ok=True)
    # Whoever imports shares the lock; who has it alone knows that every stage was left by a dead process.
    lock = os.open(research / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _tidy(ledger, research)
        except BlockingIOError:
            pass
        fcntl.flock(lock, fcntl.LOCK_SH)
        stage = Stage(research)
        try:
            yield stage
        finally:
            if not stage.recorded:
                remove_tree(stage.path)
    finally:
        os.close(lock)


def _tidy(ledger: Ledger, research: Path) -> None:
    for left in sorted(research.glob(f"{_PREFIX}*")):
        run_id = _owner(ledger, left)
        if run_id is None:
            remove_tree(left)
        else:
            _put_in_place(left, run_id)


def _owner(ledger: Ledger, left: Path) -> int | None:
    """The recorded run that a stage belongs to."""
    with contextlib.suppress(OSError, ValueError, NotFound), ledger.read() as tx:
        run = get_run(tx, int((left / _RUN).read_text()))
        if run.spec.get("imported", {}).get("stage") == left.name:
            return run.id
    return None


def _put_in_place(path: Path, run_id: int) -> None:
    place = path.parent / str(run_id)
    try:
        path.rename(place)
    except OSError as error:
        raise Conflict(
            f"the repository of run {run_id} cannot be put at {place}: {error.strerror}",
            hint=f"move away what is there; the next import puts {path.name} in its place",
        ) from error
