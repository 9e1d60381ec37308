"""The contract that every kind of workspace keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ratchet.workspaces.errors import KindUnavailable
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.trees import Change


class Kind(StrEnum):
    """`tree`: files and no git. `worktree`: git works in it. `overlay`: a mount over a shared checkout."""

    TREE = "tree"
    WORKTREE = "worktree"
    OVERLAY = "overlay"


class Checkout(Protocol):
    """A directory filled from a tree."""

    @property
    def path(self) -> Path: ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that a session in the directory should be given."""
        ...

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories outside that a session's git must be able to read. None of them need be writable."""
        ...

    def fill(self) -> None:
        """Make the directory, or make it anew, exactly as the commit has it."""
        ...

    def refill(self, base: str, tree: str) -> None:
        """Bring the directory to another commit, whatever is in it. It stays the same directory, also to a session."""
        ...

    def snapshot(self, batch: Batch) -> str:
        """The tree of the directory as it is found."""
        ...

    def place(self, changes: Iterable[Change]) -> None:
        """Write changes into the directory."""
        ...

    def own_commits(self) -> tuple[str, ...]:
        """Commits that were made inside, by something other than Ratchet. Raises `RefsMoved`."""
        ...

    def remove(self) -> None:
        """Leave nothing of it; again is fine."""
        ...


# Writing files costs some 50 µs each, a mount a few milliseconds whatever its size.
LARGE_FILES = 1000


def choose(wanted: Kind | None, files: int, no_overlay: Callable[[], str | None]) -> tuple[Kind, str]:
    """The kind and the reason for it. `no_overlay` tells why this machine has no overlay mounts, asked when it matters.

    Raises `KindUnavailable` for a kind that was asked for and cannot be had.
    """
    if wanted is Kind.OVERLAY and (refusal := no_overlay()) is not None:
        raise KindUnavailable(
            f"overlay workspaces are not possible here: {refusal}", hint="use the kind tree"
        )
    if wanted is not None:
        return wanted, "asked for"
    if files < LARGE_FILES:
        return Kind.TREE, f"{files} files are few"
    refusal = no_overlay()
    if refusal is not None:
        return Kind.TREE, f"{files} files are many, but overlay mounts are not possible here: {refusal}"
    return Kind.OVERLAY, f"{files} files are many"
