"""What can go wrong with repositories and workspaces, as types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ratchet.kernel import Conflict, Missing, RatchetError


class RepositoryError(RatchetError):
    """A git repository cannot be used as it is."""

    http_status = 409


class NotARepository(RepositoryError):
    """There is no git repository at the path."""

    http_status = 404


class RepositoryCorrupt(RepositoryError):
    """An object, a ref or a file of the repository is damaged or missing."""


class RepositoryLocked(RepositoryError):
    """A lock file stayed for longer than the bounded wait."""

    def __init__(self, message: str, *, lock: Path, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.lock = lock


class RepositoryShallow(RepositoryError):
    """A shallow or partial clone does not have what is needed."""


class RepositoryUnwritable(RepositoryError):
    """The repository or the directory of its workspaces cannot be written: read-only, full or forbidden."""

    http_status = 503


class GitFailed(RepositoryError):
    """A git command ended in a way that is not foreseen; the message is its own."""

    http_status = 500


class WorkspaceError(RatchetError):
    """A workspace cannot be made, committed or removed."""

    http_status = 409


class WorkspaceGone(WorkspaceError):
    """The directory of a workspace is no longer there."""


class UnsafePath(WorkspaceError):
    """Something in a tree must not be committed or checked out. `path` is inside the tree."""

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path!r} {reason}", hint=hint or "remove it, then try again")
        self.path = path
        self.reason = reason


class TooLarge(WorkspaceError):
    """A tree or a file in it is beyond the bounds."""

    def __init__(self, path: str, what: str, bound: str, value: int) -> None:
        super().__init__(
            f"{path!r} {what}; the bound is {value}",
            hint=f"remove what does not belong there or list it in .gitignore, or raise `{bound}`",
        )
        self.path = path
        self.bound = bound


class RefsMoved(WorkspaceError):
    """A session changed refs of the repository. `moved` has the hash before and after, `None` for absent."""

    def __init__(self, moved: Mapping[str, tuple[str | None, str | None]]) -> None:
        super().__init__(
            f"refs of the repository were changed behind Ratchet: {', '.join(sorted(moved))}",
            hint="put them back with `Repository.restore`, then let the session run without write access to git",
        )
        self.moved = dict(moved)


class PatchRefused(Conflict):
    """A patch does not apply to the workspace as it is."""


class KindUnavailable(Missing):
    """This machine does not allow a kind of workspace."""
