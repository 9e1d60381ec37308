"""Giving a workspace another base while a session works in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.kernel import NotFound
from ratchet.workspaces import Repository, UnsafePath, Workspace, WorkspaceKind
from tests.workspaces.conftest import SEED, files_of, fsck, git, require

OTHER: dict[str, bytes | None] = {
    "README.md": b"other\n",
    "src/app.py": None,
    "src/new/place.py": b"print('new')\n",
    "docs": b"a file where a directory was\n",
}


@pytest.fixture
def other(repository: Repository, base: str) -> str:
    return repository.commit_files(OTHER, parent=base, message="another", at=2)


def test_the_directory_becomes_what_the_other_commit_holds(
    repository: Repository, workspace: Workspace, other: str
) -> None:
    (workspace.path / "README.md").write_text("edited\n")
    (workspace.path / "stray").mkdir()
    (workspace.path / "stray/file").touch()
    workspace.rebase(other)
    expected = {path: repository.read_file(other, path) for path in repository.list_files(other)}
    assert files_of(workspace.path) == expected
    assert (workspace.base, workspace.changes()) == (other, [])


def test_commits_stand_on_the_new_base(repository: Repository, workspace: Workspace, other: str) -> None:
    workspace.rebase(other)
    (workspace.path / "README.md").write_text("better\n")
    made = workspace.commit("from another place")
    assert repository.log(made.hash)[0].parents == (other,)
    assert [change.path for change in made.changes] == ["README.md"]
    assert fsck(repository.path) == ""


def test_it_can_go_back_and_forth(workspace: Workspace, base: str, other: str) -> None:
    for commit in (other, base, other, base):
        workspace.rebase(commit)
        (workspace.path / "src/deep/er/data.bin").write_bytes(b"changed")
        assert workspace.commit("a change").changed
    workspace.reset()
    assert files_of(workspace.path) == SEED


def test_a_session_keeps_its_directory(workspace: Workspace, other: str) -> None:
    """A sandbox holds on to the directory that it was given, not to its name."""
    inside = os.open(workspace.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        workspace.rebase(other)
        seen = os.open("README.md", os.O_RDONLY, dir_fd=inside)
        assert os.read(seen, 100) == b"other\n"
        os.close(seen)
        made = os.open("mine", os.O_WRONLY | os.O_CREAT, dir_fd=inside)
        os.close(made)
    finally:
        os.close(inside)
    assert [change.path for change in workspace.changes()] == ["mine"]


def test_nothing_that_was_left_in_the_directory_is_in_the_way(
    workspace: Workspace, other: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (workspace.path / "README.md").unlink()
    (workspace.path / "README.md").symlink_to(outside)
    (workspace.path / "locked").mkdir()
    (workspace.path / "locked/file").touch()
    (workspace.path / "locked").chmod(0o000)
    os.mkfifo(workspace.path / "src/pipe")
    deep = workspace.path
    for _ in range(100):
        deep /= "d"
        deep.mkdir()
    workspace.rebase(other)
    assert workspace.changes() == []
    assert (outside / "precious").exists()
    assert {each.name for each in workspace.path.iterdir()} - {".git"} == {"README.md", "docs", "src"}


def test_ignored_files_go_too(repository: Repository, base: str, kind: WorkspaceKind) -> None:
    ignoring = repository.commit_files({".gitignore": b"*.log\n"}, parent=base, message="ignore")
    workspace = repository.workspace(ignoring, kind=kind)
    (workspace.path / "old.log").touch()
    workspace.rebase(base)
    assert files_of(workspace.path) == SEED


def test_a_commit_that_does_not_exist_changes_nothing(workspace: Workspace, base: str) -> None:
    (workspace.path / "README.md").write_text("edited\n")
    with pytest.raises(NotFound):
        workspace.rebase("1" * 40)
    assert workspace.base == base
    assert (workspace.path / "README.md").read_text() == "edited\n"


@pytest.mark.parametrize("branch", [False, True])
def test_git_of_the_session_sees_the_new_base(
    repository: Repository, base: str, other: str, branch: bool
) -> None:
    workspace = repository.workspace(base, kind=WorkspaceKind.WORKTREE, branch=branch)
    (workspace.path / "README.md").write_text("edited\n")
    git(workspace.path, "add", "--all")
    workspace.rebase(other)
    assert git(workspace.path, "rev-parse", "HEAD") == other
    assert git(workspace.path, "status", "--porcelain") == ""
    assert workspace.commit("nothing").own_commits == ()
    assert repository.ref("refs/heads/best") == base


def test_a_worktree_that_its_session_broke_is_refused(repository: Repository, base: str, other: str) -> None:
    workspace = repository.workspace(base, kind=WorkspaceKind.WORKTREE)
    (workspace.path / ".git").unlink()
    with pytest.raises(UnsafePath, match="removed or replaced"):
        workspace.rebase(other)


def test_an_overlay_stays_the_same_mount(repository: Repository, base: str, other: str) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    workspace = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    device = workspace.path.stat().st_dev
    workspace.rebase(other)
    assert workspace.path.stat().st_dev == device
