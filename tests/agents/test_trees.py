"""Files of an agent: into a commit and out of it, and what never gets there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.agents.staging_area import UnfitFiles, begin_tree, check_out, commit_tree, git_files, read_tree
from ratchet.workspaces import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository.create(tmp_path / "repo.git") as made:
        yield made


def git(directory: Path, *words: str) -> str:
    command = ["git", "-C", str(directory), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_version_is_a_clone_that_stands_at_its_commit(repository: Repository, tmp_path: Path) -> None:
    begin_tree(tmp_path / "ROOT")
    (tmp_path / "ROOT" / "parts").mkdir()
    (tmp_path / "ROOT" / "parts" / "words.py").write_text("x = 1\n")
    (tmp_path / "ROOT" / "state.json").write_text("{}")
    (tmp_path / "ROOT" / "logs").mkdir()
    (tmp_path / "ROOT" / "logs" / "runner.log").write_text("hello")
    first = commit_tree(repository, read_tree(tmp_path / "ROOT"), parent=None, message="First")
    repository.advance("refs/heads/main", first, expected=None)
    check_out(repository, first, tmp_path / first)
    assert git(tmp_path / first, "rev-parse", "HEAD") == first
    assert git(tmp_path / first, "ls-files").split() == [".gitignore", "parts/words.py"]
    (tmp_path / first / "state.json").write_text("{}")
    assert git(tmp_path / first, "status", "--porcelain") == ""
    assert git(tmp_path / first, "fsck", "--strict") == ""

    (tmp_path / first / "parts" / "words.py").unlink()
    (tmp_path / first / "new.py").write_text("y = 2\n")
    second = commit_tree(repository, read_tree(tmp_path / first), parent=first, message="Second")
    assert set(repository.list_files(second)) == {".gitignore", "new.py"}


def test_what_decides_about_git_is_seen_when_it_changes(repository: Repository, tmp_path: Path) -> None:
    begin_tree(tmp_path / "ROOT")
    before = git_files(tmp_path / "ROOT")
    assert git_files(tmp_path / "ROOT") == before
    hooks = tmp_path / "ROOT" / ".git" / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    assert git_files(tmp_path / "ROOT") != before
    (hooks / "pre-commit").unlink()
    hooks.rmdir()
    (tmp_path / "ROOT" / ".git").rename(tmp_path / "away")
    assert git_files(tmp_path / "ROOT") != before


def test_only_plain_files_become_part_of_a_version(tmp_path: Path) -> None:
    begin_tree(tmp_path / "ROOT")
    (tmp_path / "ROOT" / "out").symlink_to("/etc/passwd")
    with pytest.raises(UnfitFiles, match="out is neither"):
        read_tree(tmp_path / "ROOT")
    (tmp_path / "ROOT" / "out").unlink()
    os.mkfifo(tmp_path / "ROOT" / "pipe")
    with pytest.raises(UnfitFiles, match="pipe is neither"):
        read_tree(tmp_path / "ROOT")


def test_a_version_has_a_size(tmp_path: Path) -> None:
    begin_tree(tmp_path / "ROOT")
    with (tmp_path / "ROOT" / "huge").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(UnfitFiles, match="more than"):
        read_tree(tmp_path / "ROOT")


def test_an_agent_cannot_choose_what_is_ignored(tmp_path: Path) -> None:
    begin_tree(tmp_path / "ROOT")
    (tmp_path / "ROOT" / ".gitignore").write_text("*\n")
    assert b"state.json" in read_tree(tmp_path / "ROOT")[".gitignore"]
