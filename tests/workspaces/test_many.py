"""Hundreds of workspaces at once from one repository."""

from __future__ import annotations

import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.workspaces import Repository, WorkspaceKind
from tests.workspaces.conftest import SEED, files_of, fsck, git

_ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_hundreds_are_open_at_once_and_do_not_mix(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    count = 40 if kind is WorkspaceKind.WORKTREE else 200

    def attempt(number: int) -> str:
        workspace = repository.workspace(base, kind=kind)
        (workspace.path / "src/app.py").write_text(f"{number}\n")
        (workspace.path / f"own{number}").touch()
        return workspace.commit(f"number {number}").hash

    with ThreadPoolExecutor(16) as pool:
        commits = list(pool.map(attempt, range(count)))
    assert len(list(repository.workspaces.glob("*/workspace-*"))) == count
    for number, commit in enumerate(commits):
        assert repository.read_file(commit, "src/app.py") == b"%d\n" % number
        assert [change.path for change in repository.changes(base, commit)] == [f"own{number}", "src/app.py"]
    repository.close()
    assert not list(repository.workspaces.glob("*/workspace-*"))
    assert fsck(repository.path) == ""


@pytest.mark.soak
def test_several_processes_share_a_repository(repository: Repository, base: str, kind: WorkspaceKind) -> None:
    command = [sys.executable, "-m", "tests.workspaces.actors", "batch", str(repository.path), kind]
    running = [
        subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 4, [errors for _, errors in said]
    commits = [line for out, _ in said for line in out.split()]
    assert len(set(commits)) == 40
    assert {repository.log(commit)[0].parents for commit in commits} == {(base,)}
    assert fsck(repository.path) == ""


def test_a_commit_of_many_files_needs_few_descriptors(repository: Repository, base: str) -> None:
    """A process may have 1,024 open by default, and hundreds of attempts share them."""
    workspace = repository.workspace(base)
    for number in range(300):
        (workspace.path / f"new{number}").write_text(f"{number}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
    try:
        made = workspace.commit("many")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(made.changes) == 300
    assert fsck(repository.path) == ""


def test_a_gc_by_a_person_meanwhile_disturbs_nobody(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    workspace = repository.workspace(base, kind=kind)
    (workspace.path / "README.md").write_text("changed\n")
    git(repository.path, "gc", "--quiet", "--prune=now")
    made = workspace.commit("after the collection")
    repository.advance("refs/heads/best", made.hash, expected=base)
    git(repository.path, "gc", "--quiet", "--prune=now")
    assert files_of(repository.workspace("best", kind=kind).path) == SEED | {"README.md": b"changed\n"}
    assert fsck(repository.path) == ""
