"""Repositories that are absent, broken, locked, shallow or cannot be written: what is said, and never a success."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.kernel import Missing, NotFound, RatchetError
from ratchet.workspaces import (
    GitFailed,
    NotARepository,
    Repository,
    RepositoryCorrupt,
    RepositoryShallow,
    RepositoryUnwritable,
    WorkspaceKind,
    find_git,
)
from tests.ledger.disks import READ_ONLY, SMALL, on_disk
from tests.workspaces.conftest import fsck, git


def test_an_absent_path_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(NotARepository, match="does not exist") as caught:
        Repository.open(tmp_path / "absent")
    assert caught.value.hint


def test_a_directory_inside_a_clone_is_no_repository(clone: Path) -> None:
    """Git would search upwards and work on something that was not named."""
    with pytest.raises(NotARepository, match="not a git repository"):
        Repository.open(clone / "src")


def test_a_file_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotARepository):
        Repository.open(tmp_path / "file")


@pytest.mark.parametrize("damage", ["HEAD garbage", "HEAD missing", "config garbage", "pointer garbage"])
def test_a_repository_that_git_cannot_read_is_corrupt(clone: Path, damage: str) -> None:
    match damage:
        case "HEAD garbage":
            (clone / ".git/HEAD").write_bytes(os.urandom(64))
        case "HEAD missing":
            (clone / ".git/HEAD").unlink()
        case "config garbage":
            (clone / ".git/config").write_text("[core\nbare = maybe")
        case "pointer garbage":
            (clone / ".git").rename(clone / "elsewhere")
            (clone / ".git").write_text("not a pointer")
    with pytest.raises(RepositoryCorrupt, match="damaged") as caught:
        Repository.open(clone)
    assert "git fsck" in (caught.value.hint or "")


def _object(repository: Repository, revision: str) -> Path:
    number = git(repository.path, "rev-parse", revision)
    return repository.path / "objects" / number[:2] / number[2:]


@pytest.mark.parametrize("what", ["best", "best^{tree}", "best:src", "best:src/app.py"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage"])
def test_a_damaged_object_is_corrupt_and_no_workspace_is_made(
    repository: Repository, what: str, damage: str
) -> None:
    file = _object(repository, what)
    file.chmod(0o644)
    content = file.read_bytes()
    match damage:
        case "missing":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "truncated":
            file.write_bytes(content[: len(content) // 2])
        case "garbage":
            file.write_bytes(b"garbage" * 20)
    with Repository.open(repository.path) as fresh:
        with pytest.raises(RepositoryCorrupt, match="damaged"):
            fresh.workspace("best")
        assert not list(fresh.workspaces.glob("*/workspace-*"))


def test_a_workspace_can_still_be_made_of_what_is_whole(repository: Repository, base: str) -> None:
    other = repository.commit_files({"only": b"this\n"}, parent=None, message="other")
    _object(repository, "best").unlink()
    with Repository.open(repository.path) as fresh:
        with pytest.raises(RatchetError):
            fresh.workspace(base)
        assert (fresh.workspace(other).path / "only").read_text() == "this\n"


def test_an_object_that_a_power_cut_emptied_is_written_again(repository: Repository, base: str) -> None:
    made = repository.commit_files({"a": b"lost\n"}, parent=base, message="a", at=5)
    file = _object(repository, f"{made}:a")
    file.chmod(0o644)
    file.write_bytes(b"")
    with Repository.open(repository.path) as fresh:
        assert fresh.commit_files({"a": b"lost\n"}, parent=base, message="a", at=5) == made
    assert fsck(repository.path) == ""


def test_a_shallow_clone_works_and_says_when_history_is_needed(clone: Path, tmp_path: Path) -> None:
    for number in range(3):
        git(clone, "commit", "--quiet", "--allow-empty", "-m", str(number))
    old = git(clone, "rev-parse", "HEAD~2")
    git(tmp_path, "clone", "--quiet", "--depth=1", clone.as_uri(), "shallow")
    with Repository.open(tmp_path / "shallow") as repository:
        workspace = repository.workspace("main")
        (workspace.path / "README.md").write_text("changed\n")
        made = workspace.commit("on top").hash
        repository.advance("refs/heads/kept", made, expected=None)
        assert repository.is_ancestor("main", made)
        with pytest.raises(NotFound):
            repository.is_ancestor(old, made)
        unrelated = repository.commit_files({"a": b"a"}, parent=None, message="a")
        with pytest.raises(RepositoryShallow, match="cannot be known") as caught:
            repository.is_ancestor(unrelated, made)
        assert "--unshallow" in (caught.value.hint or "")
    assert fsck(tmp_path / "shallow") == ""


def test_a_partial_clone_does_not_fetch_what_it_lacks(clone: Path, tmp_path: Path) -> None:
    git(clone, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:none", clone.as_uri(), "partial.git")
    with (
        Repository.open(tmp_path / "partial.git") as repository,
        pytest.raises(RepositoryShallow, match="partial"),
    ):
        repository.workspace("main")


def test_uncommitted_work_can_be_asked_for(clone: Path) -> None:
    for number in range(5):
        (clone / f"new{number}").touch()
    with Repository.open(clone) as repository:
        assert repository.uncommitted() == ["new0", "new1", "new2", "new3", "new4"]


def test_a_clone_without_a_commit_has_only_uncommitted_work(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    (tmp_path / "empty/staged").touch()
    git(tmp_path / "empty", "add", "staged")
    with Repository.open(tmp_path / "empty") as repository:
        assert repository.uncommitted() == ["staged"]
        with pytest.raises(NotFound):
            repository.workspace("HEAD")


@pytest.mark.parametrize("kind", [WorkspaceKind.TREE, WorkspaceKind.WORKTREE])
def test_the_lock_of_a_persons_index_does_not_matter(clone: Path, kind: WorkspaceKind) -> None:
    (clone / ".git/index.lock").touch()
    with Repository.open(clone) as repository:
        workspace = repository.workspace("main", kind=kind)
        (workspace.path / "README.md").write_text("changed\n")
        assert workspace.commit("change").changed


def test_a_read_only_repository_is_said_to_be_so(tmp_path: Path) -> None:
    said = on_disk(READ_ONLY, _made(tmp_path / "disk"), act_in_a_read_only_repository)
    assert said == ["RepositoryUnwritable"] * 4


def test_a_full_disk_is_said_to_be_full_and_the_repository_stays_whole(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    said, found, wrong = on_disk(SMALL, disk, act_on_a_full_disk, size="2m")
    assert said == ["RepositoryUnwritable", "RepositoryUnwritable"]
    assert found == []
    assert wrong == ""


def _made(disk: Path) -> Path:
    disk.mkdir()
    with Repository.create(disk / "repo.git") as repository:
        first = repository.commit_files({"a": b"a"}, parent=None, message="a")
        repository.advance("refs/heads/best", first, expected=None)
    return disk


def act_in_a_read_only_repository(disk: Path) -> list[str]:
    said = []
    with Repository.open(disk / "repo.git") as repository:
        base = repository.resolve("best")
        for act in (
            lambda: repository.workspace("best"),
            lambda: repository.commit_files({"a": b"b"}, parent=base, message="b"),
            lambda: repository.advance("refs/heads/new", base, expected=None),
            lambda: Repository.create(disk / "other.git"),
        ):
            try:
                act()
            except RatchetError as error:
                said.append(type(error).__name__)
    return said


def act_on_a_full_disk(disk: Path) -> tuple[list[str], list[str], str]:
    said = []
    with Repository.create(disk / "repo.git") as repository:
        first = repository.commit_files({"big": os.urandom(400_000)}, parent=None, message="big")
        repository.advance("refs/heads/best", first, expected=None)
        workspace = repository.workspace(first)
        (workspace.path / "bigger").write_bytes(os.urandom(900_000))
        for act in (
            lambda: workspace.commit("no room"),
            lambda: [repository.workspace(first) for _ in range(3)],
        ):
            try:
                act()
            except RepositoryUnwritable as error:
                said.append(type(error).__name__)
        workspace.discard()
        found = [path.name for path in (disk / "repo.git/objects").glob("tmp_obj_*")]
    return said, found, fsck(disk / "repo.git")


def test_without_git_it_is_said_to_be_missing(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="git was not found") as caught:
        Repository.open(clone)
    assert "install git 2.31" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho git version 2.17.1\n", "git 2.17 .* too old"),
        ("#!/bin/sh\necho nonsense\n", "unknown version"),
        ("#!/no/such/shell\n", "cannot be run"),
    ],
)
def test_a_git_that_cannot_be_used_is_said_to_be_missing(tmp_path: Path, script: str, words: str) -> None:
    (tmp_path / "git").write_text(script)
    (tmp_path / "git").chmod(0o755)
    with pytest.raises(Missing, match=words):
        find_git(str(tmp_path))


def test_a_repository_that_vanishes_is_said_to_be_gone(repository: Repository, base: str) -> None:
    repository.path.rename(repository.path.with_name("moved"))
    with pytest.raises((NotARepository, RepositoryUnwritable, GitFailed)):
        repository.commit_files({"a": b"b"}, parent=base, message="b")
    with pytest.raises(NotARepository, match="gone"):
        repository.log(base)
