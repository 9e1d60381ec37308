"""Telling what is dealt with in no time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.workspaces import Repository, WorkspaceKind
from ratchet.workspaces.workspace import FEW_FILES, holds_little
from tests.workspaces.conftest import git


def test_a_few_small_files_are_little(tmp_path: Path) -> None:
    assert holds_little(tmp_path)
    (tmp_path / "src").mkdir()
    for number in range(FEW_FILES - 1):
        (tmp_path / "src" / f"{number}.py").write_text("x = 1\n")
    assert holds_little(tmp_path)
    (tmp_path / "one_more.py").touch()
    assert not holds_little(tmp_path)


@pytest.mark.parametrize("what", ["large", "link", "pipe", ".gitignore", "deep/.gitattributes", "gone"])
def test_anything_that_may_take_longer_is_not(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    match what:
        case "large":
            with (place / what).open("wb") as file:
                file.truncate(1024 * 1024)
        case "link":
            (place / what).symlink_to(tmp_path)
        case "pipe":
            os.mkfifo(place / what)
        case "gone":
            place.rmdir()
        case _:
            (place / what).parent.mkdir(exist_ok=True)
            (place / what).write_text("*.log\n")
    assert not holds_little(place)


def test_a_commit_is_at_hand_once_its_files_are_in_memory(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "own.git") as own:
        commit = own.commit_files({"a.py": b"1\n", "b/c.py": b"2\n"}, parent=None, message="first")
        assert not own.is_at_hand(commit), "there was no workspace yet"
        with own.workspace(commit) as workspace:
            assert own.is_at_hand(commit)
            assert workspace.holds_little()
        with own.workspace(commit, kind=WorkspaceKind.WORKTREE) as workspace:
            assert not workspace.holds_little(), "git is in it"
        many = {f"{number}.py": b"" for number in range(FEW_FILES)}
        assert not own.is_at_hand(own.commit_files(many, parent=commit, message="many"))
        large = {"large.bin": bytes(1024 * 1024)}
        assert not own.is_at_hand(own.commit_files(large, parent=commit, message="large"))
        assert not own.is_at_hand("0" * 40)
    with Repository.open(tmp_path / "own.git") as again:
        with again.workspace(commit):
            pass
        assert again.is_at_hand(commit), "it was read for the workspace"
        assert not again.is_at_hand(git(again.path, "commit-tree", f"{commit}^{{tree}}", "-m", "by git"))
