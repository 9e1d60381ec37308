"""Workspaces in memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ratchet.workspaces import Repository, WorkspaceKind, memory_directory
from tests.ledger.disks import SMALL, on_disk
from tests.workspaces.conftest import SEED, files_of, fsck, require


@pytest.fixture
def memory(repository: Repository) -> Path:
    found = memory_directory(repository.path)
    if found is None:
        pytest.skip("this machine has no room in memory")
    return found


def test_a_workspace_in_memory_does_what_others_do(
    repository: Repository, base: str, kind: WorkspaceKind, memory: Path
) -> None:
    with Repository.open(repository.path, workspaces=memory) as own:
        require(own, kind)
        workspace = own.workspace(base, kind=kind)
        assert workspace.path.is_relative_to(memory)
        (workspace.path / "README.md").write_text("changed\n")
        made = workspace.commit("from memory")
    assert repository.read_file(made.hash, "README.md") == b"changed\n"
    assert fsck(repository.path) == ""
    shutil.rmtree(memory)


def test_what_a_repository_that_is_gone_left_in_memory_is_freed(
    repository: Repository, base: str, memory: Path, tmp_path: Path
) -> None:
    with Repository.open(repository.path, workspaces=memory) as own:
        workspace = own.workspace(base, kind=WorkspaceKind.TREE)
        repository.path.rename(tmp_path / "moved.git")
        memory_directory(tmp_path / "another")
        assert files_of(workspace.path) == SEED
    memory_directory(tmp_path / "another")
    assert not memory.exists()
    (tmp_path / "moved.git").rename(repository.path)


def test_a_directory_on_disk_is_not_taken_for_memory(tmp_path: Path) -> None:
    assert memory_directory(tmp_path, tmp_path) is None
    assert memory_directory(tmp_path, tmp_path / "absent") is None


def test_a_place_that_somebody_else_prepared_is_not_used(tmp_path: Path) -> None:
    assert on_disk(SMALL, tmp_path, act_beside_traps, size="300m") == [None, None, True]


def act_beside_traps(shared: Path) -> list[str | bool | None]:
    """A link, a directory that all may write, and nothing at all."""
    own = shared / f"ratchet-{os.getuid()}"
    own.symlink_to("/tmp")
    said: list[str | bool | None] = [_told(shared)]
    own.unlink()
    own.mkdir()
    own.chmod(0o777)
    said.append(_told(shared))
    own.rmdir()
    return [*said, str(own) in (_told(shared) or "")]


def test_other_users_cannot_look_into_workspaces_in_memory(tmp_path: Path) -> None:
    assert on_disk(SMALL, tmp_path, act_in_an_open_place, size="300m") == ["0o700", "0o700"]


def act_in_an_open_place(shared: Path) -> list[str]:
    """One that is made here, and one that was open to others."""
    own = shared / f"ratchet-{os.getuid()}"
    said = []
    for _ in range(2):
        memory_directory(Path("/somewhere/repo.git"), shared)
        said.append(oct(own.stat().st_mode & 0o777))
        own.chmod(0o711)
    return said


def _told(shared: Path) -> str | None:
    found = memory_directory(Path("/somewhere/repo.git"), shared)
    return None if found is None else str(found)
