"""What other processes do in the tests: make workspaces, again and again or once, and then wait to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ratchet.workspaces import Repository, WorkspaceKind


def work(path: Path, kind: WorkspaceKind) -> None:
    """Create, commit and discard without end; a line for each commit once it is made."""
    with Repository.open(path) as repository:
        number = 0
        while True:
            workspace = repository.workspace("best", kind=kind, branch=kind is WorkspaceKind.WORKTREE)
            number += 1
            for file in range(5):
                (workspace.path / f"src/new{file}").write_text(f"{time.time_ns()} {number}\n")
            made = workspace.commit(f"number {number}")
            print(made.hash, flush=True)
            workspace.discard()


def hold(path: Path, kind: WorkspaceKind) -> None:
    """Have one workspace open."""
    with Repository.open(path) as repository:
        workspace = repository.workspace("best", kind=kind, branch=kind is WorkspaceKind.WORKTREE)
        print(workspace.path, flush=True)
        time.sleep(600)


def batch(path: Path, kind: WorkspaceKind) -> None:
    """Make ten commits, one after the other, and leave in good order."""
    with Repository.open(path) as repository:
        for number in range(10):
            with repository.workspace("best", kind=kind) as workspace:
                (workspace.path / "src/app.py").write_text(f"{time.time_ns()} {number}\n")
                print(workspace.commit("one of many").hash, flush=True)


if __name__ == "__main__":
    {"work": work, "hold": hold, "batch": batch}[sys.argv[1]](Path(sys.argv[2]), WorkspaceKind(sys.argv[3]))
