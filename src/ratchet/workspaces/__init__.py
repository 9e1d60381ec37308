"""Workspaces over git: a directory from a commit in milliseconds, and a commit from a directory."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workspaces.directories import memory_directory
    from ratchet.workspaces.errors import (
        GitFailed,
        KindUnavailable,
        NotARepository,
        PatchRefused,
        RefsMoved,
        RepositoryCorrupt,
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
    from ratchet.workspaces.repository import Repository
    from ratchet.workspaces.trees import Commit, Identity, LogEntry, TreeBounds, TreeChange, TreeEntry
    from ratchet.workspaces.workspace import Workspace, WorkspaceKind
    from ratchet.workspaces.worktree import Pruned
else:
    __getattr__ = on_demand(__name__)
