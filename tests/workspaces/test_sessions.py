"""What a session may do with git in a worktree of its own, and what is noticed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from ratchet.sandbox import IsolationRefused, Policy, run
from ratchet.workspaces import RefsMoved, Repository, UnsafePath, Workspace, WorkspaceKind
from tests.workspaces.conftest import git


@pytest.fixture
def session(repository: Repository, base: str) -> Workspace:
    return repository.workspace(base, kind=WorkspaceKind.WORKTREE)


def test_git_status_works_and_shows_the_work(session: Workspace) -> None:
    assert git(session.path, "status", "--porcelain") == ""
    (session.path / "README.md").write_text("changed\n")
    (session.path / "new").touch()
    assert git(session.path, "status", "--porcelain").split() == ["M", "README.md", "??", "new"]


def test_a_session_can_commit_without_being_told_who_it_is(session: Workspace) -> None:
    git(session.path, "commit", "--quiet", "--allow-empty", "-m", "mine", **session.environment)
    assert git(session.path, "log", "-1", "--format=%an") == "Ratchet"


@pytest.mark.parametrize("branch", [False, True])
def test_commits_of_the_session_are_noted_and_not_taken(
    repository: Repository, base: str, branch: bool
) -> None:
    session = repository.workspace(base, kind=WorkspaceKind.WORKTREE, branch=branch)
    (session.path / "README.md").write_text("first\n")
    git(session.path, "commit", "--quiet", "--all", "-m", "mine")
    (session.path / "README.md").write_text("second\n")
    made = session.commit("ours")
    assert repository.log(made.hash)[0].parents == (base,)
    assert repository.read_file(made.hash, "README.md") == b"second\n"
    assert made.own_commits == (git(session.path, "rev-parse", "HEAD"),)


def test_a_branch_of_its_own_ends_with_the_workspace(repository: Repository, base: str) -> None:
    session = repository.workspace(base, kind=WorkspaceKind.WORKTREE, branch=True)
    assert git(session.path, "branch", "--show-current") == f"ratchet/{session.name}"
    session.discard()
    assert git(repository.path, "for-each-ref", "--format=%(refname)") == "refs/heads/best"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("update-ref", "refs/heads/best", "HEAD"), "refs/heads/best"),
        (("update-ref", "-d", "refs/heads/best"), "refs/heads/best"),
        (("branch", "sneaky"), "refs/heads/sneaky"),
        (("checkout", "--quiet", "-b", "sneaky"), "refs/heads/sneaky"),
        (("tag", "v9"), "refs/tags/v9"),
        (("update-ref", "refs/ratchet/kept", "HEAD"), "refs/ratchet/kept"),
    ],
)
def test_a_session_that_moves_refs_is_found_out_and_they_are_put_back(
    repository: Repository, session: Workspace, base: str, words: tuple[str, ...], name: str
) -> None:
    git(session.path, "commit", "--quiet", "--allow-empty", "-m", "mine")
    git(session.path, *words)
    with pytest.raises(RefsMoved, match=name) as caught:
        session.commit("ours")
    repository.restore(caught.value.moved)
    assert repository.ref(name) == (base if name == "refs/heads/best" else None)


def test_refs_that_ratchet_moves_meanwhile_are_fine(
    repository: Repository, session: Workspace, base: str
) -> None:
    better = repository.commit_files({"README.md": b"better\n"}, parent=base, message="better")
    repository.advance("refs/heads/best", better, expected=base)
    repository.advance("refs/ratchet/kept", better, expected=None)
    repository.workspace(base, kind=WorkspaceKind.WORKTREE, branch=True)
    assert not session.commit("nothing").changed


def test_a_person_may_fetch_and_what_is_not_guarded_may_move(repository: Repository, base: str) -> None:
    session = repository.workspace(base, kind=WorkspaceKind.WORKTREE, guard=["refs/ratchet/"])
    git(repository.path, "update-ref", "refs/remotes/origin/main", base)
    git(repository.path, "branch", "by-a-person", base)
    assert not session.commit("nothing").changed


def test_in_a_sandbox_git_works_and_the_repository_cannot_be_written(
    repository: Repository, session: Workspace, base: str
) -> None:
    (session.path / "README.md").write_text("changed\n")
    policy = Policy(
        readable=session.readable, writable=(session.path,), environment=dict(session.environment)
    )
    command = (
        "git status --porcelain; git commit -qam mine || git update-ref refs/heads/best HEAD || echo refused"
    )
    try:
        done = asyncio.run(run(["/bin/sh", "-c", command], cwd=session.path, policy=policy))
    except IsolationRefused as refused:
        pytest.skip(str(refused))
    assert done.stdout.split() == [b"M", b"README.md", b"refused"]
    made = session.commit("ours")
    assert (made.changed, made.own_commits, repository.ref("refs/heads/best")) == (True, (), base)


def test_a_lock_left_by_the_sessions_git_does_not_stop_the_commit(session: Workspace) -> None:
    administration = Path(git(session.path, "rev-parse", "--absolute-git-dir"))
    (administration / "index.lock").touch()
    (session.path / "README.md").write_text("changed\n")
    assert session.commit("ours").changed


@pytest.mark.parametrize("how", ["removed", "pointed elsewhere", "made a repository", "made a link"])
def test_a_session_that_replaces_its_git_is_refused(session: Workspace, tmp_path: Path, how: str) -> None:
    pointer = session.path / ".git"
    content = pointer.read_text()
    pointer.unlink()
    if how == "pointed elsewhere":
        pointer.write_text(f"gitdir: {tmp_path}\n")
    elif how == "made a repository":
        git(session.path, "init", "--quiet")
    elif how == "made a link":
        (tmp_path / "pointer").write_text(content)
        pointer.symlink_to(tmp_path / "pointer")
    with pytest.raises(UnsafePath, match=r"\.git"):
        session.commit("ours")
    session.discard()
    assert not session.path.exists()


def test_a_session_that_breaks_its_administration_can_be_discarded(
    repository: Repository, session: Workspace
) -> None:
    shutil.rmtree(repository.path / "worktrees")
    session.discard()
    assert git(repository.path, "worktree", "list").count("\n") == 0


def test_a_session_that_makes_a_repository_of_a_plain_directory_is_refused(
    repository: Repository, base: str
) -> None:
    workspace = repository.workspace(base, kind=WorkspaceKind.TREE)
    git(workspace.path, "init", "--quiet")
    git(workspace.path, "commit", "--quiet", "--allow-empty", "-m", "mine")
    with pytest.raises(UnsafePath, match=r"'\.git'"):
        workspace.commit("ours")
