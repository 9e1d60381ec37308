"""Where the repositories of projects lie."""

from __future__ import annotations

from pathlib import Path

from ratchet.ledger.projects import Project
from ratchet.projects.address import read_address
from ratchet.runtime import Runtime

# What lies beside a clone: the workspaces of its protocols, and what is under way.
_WORKTREES, _UNDER_WAY = _BESIDE = ("worktrees", "under-way")


def own_place(runtime: Runtime, project_id: int) -> Path:
    """The directory of one project: its clone, and the workspaces of its protocols."""
    return runtime.home / Path(runtime.settings.projects.root).expanduser() / str(project_id)


def worktrees_of(runtime: Runtime, project_id: int) -> Path:
    return own_place(runtime, project_id) / _WORKTREES


def corner_of(runtime: Runtime, project_id: int) -> Path:
    """Where clones and transfers lie until they are finished."""
    return own_place(runtime, project_id) / _UNDER_WAY


def clone_place(runtime: Runtime, project: Project) -> Path | None:
    """Where a clone of the project belongs on this machine; `None` for one that has no address to clone."""
    if project.git_url is None:
        return None
    name = read_address(project.git_url).name
    return own_place(runtime, project.id) / (f"{name}.repository" if name in _BESIDE else name)
