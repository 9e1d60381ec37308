"""Who owns which workspaces: a corner of the directory for each process, marked as alive by a lock.

The kernel drops the lock when its process ends, however it ends. So what lies in a corner whose lock is free was left
by a dead process, and nobody has to trust process numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ratchet.kernel import Misuse
from ratchet.workspaces.errors import RepositoryUnwritable
from ratchet.workspaces.removal import remove_tree

_LOCK = "lock"
_MARK = "repository"
_TRIES = 10
# A process that has not named its corner by then died before it could.
_UNNAMED_SECONDS = 3600.0
_NAMES = "[0-9a-f]" * 8
_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


class Claim:
    """This process's corner below `root`. `name` is part of the name of everything in it."""

    def __init__(self, root: Path, name: str, descriptor: int) -> None:
        self.name = name
        self.directory = root / name
        self._descriptor = descriptor
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        _claims.add(self)

    @classmethod
    def take(cls, root: Path, repository: Path) -> Self:
        try:
            _mark(root, repository)
            for _ in range(_TRIES):
                name = secrets.token_hex(4)
                # Locked before it has its name: what is found without its lock is taken for dead, and removed.
                unnamed = root / f".{name}"
                unnamed.mkdir()
                descriptor = _lock(unnamed)
                if descriptor is not None:
                    unnamed.rename(root / name)
                    return cls(root, name, descriptor)
        except OSError as error:
            raise RepositoryUnwritable(
                f"workspaces cannot be made in {root}: {error.strerror}",
                hint="free some space, make the directory writable, or choose another directory for workspaces",
            ) from error
        raise RepositoryUnwritable(f"no corner for workspaces could be claimed in {root}")

    @property
    def is_mine(self) -> bool:
        """False in a process that was forked from the one that took it."""
        return self._pid == os.getpid()

    def new_name(self, label: str) -> str:
        return f"{label}-{self.name}-{next(self._numbers)}"

    def release(self) -> None:
        if self.is_mine:
            remove_tree(self.directory)
        self.forget()

    def forget(self) -> None:
        """Let go of the lock; the corner is then anybody's to remove."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def dead_claims(root: Path) -> Iterator[str]:
    """The names of corners whose process is gone, each held while the caller looks at it, then removed."""
    for unnamed in root.glob(f".{_NAMES}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - unnamed.stat().st_mtime > _UNNAMED_SECONDS:
                remove_tree(unnamed)
    for directory in sorted(root.glob(_NAMES)):
        descriptor = _lock(directory)
        if descriptor is None:
            continue
        try:
            yield directory.name
            remove_tree(directory)
        finally:
            os.close(descriptor)


def has_claims(root: Path) -> bool:
    return any(root.glob(_NAMES))


def marked_repository(root: Path) -> Path | None:
    """The repository that a directory serves; `None` when it does not say."""
    try:
        return Path((root / _MARK).read_text().strip())
    except (OSError, ValueError):
        return None


def _lock(directory: Path) -> int | None:
    """The lock of a corner, or `None` while another process has it or removes it."""
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (directory / _LOCK).stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None


def _mark(root: Path, repository: Path) -> None:
    """One directory serves one repository: prune could not tell whose leftovers it removes otherwise."""
    root.mkdir(parents=True, exist_ok=True)
    other = marked_repository(root)
    if other == repository:
        return
    if other is not None and other.is_dir():
        raise Misuse(
            f"{root} holds the workspaces of {other}", hint="give each repository a directory of its own"
        )
    temporary = root / f"{_MARK}-{secrets.token_hex(4)}"
    temporary.write_text(f"{repository}\n")
    temporary.replace(root / _MARK)


def _forget_in_child() -> None:
    # A forked child would keep the lock of its parent alive after the parent's death.
    for claim in list(_claims):
        claim.forget()


os.register_at_fork(after_in_child=_forget_in_child)
