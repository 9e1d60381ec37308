"""Workspaces over git: a directory from a commit in milliseconds, and a commit from a directory."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workspaces.bounds import Bounds
    from ratchet.workspaces.checkout import Kind
    from ratchet.workspaces.errors import (
        GitFailed,
        KindUnavailable,
        NotARepository,
        PatchRefused,
        RefsMoved,
        RepositoryCorrupt,
        RepositoryDirty,
        RepositoryError,
        RepositoryLocked,
        RepositoryShallow,
        RepositoryUnwritable,
        TooLarge,
        UnsafePath,
        WorkspaceError,
        WorkspaceGone,
    )
    from ratchet.workspaces.git import LEAST_GIT, find_git
    from ratchet.workspaces.history import Commit, LogEntry
    from ratchet.workspaces.identity import Identity
    from ratchet.workspaces.memory import memory_directory
    from ratchet.workspaces.pruning import Pruned
    from ratchet.workspaces.repository import Repository
    from ratchet.workspaces.trees import Change, Entry
    from ratchet.workspaces.workspace import Workspace
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "LEAST_GIT",
    "Bounds",
    "Change",
    "Commit",
    "Entry",
    "GitFailed",
    "Identity",
    "Kind",
    "KindUnavailable",
    "LogEntry",
    "NotARepository",
    "PatchRefused",
    "Pruned",
    "RefsMoved",
    "Repository",
    "RepositoryCorrupt",
    "RepositoryDirty",
    "RepositoryError",
    "RepositoryLocked",
    "RepositoryShallow",
    "RepositoryUnwritable",
    "TooLarge",
    "UnsafePath",
    "Workspace",
    "WorkspaceError",
    "WorkspaceGone",
    "find_git",
    "memory_directory",
]
