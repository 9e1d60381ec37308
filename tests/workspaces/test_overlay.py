"""Large trees: overlay mounts over a shared checkout, and what happens where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.workspaces import KindUnavailable, Repository, WorkspaceKind
from ratchet.workspaces.workspace import LARGE_FILES, choose
from tests.workspaces.conftest import SEED, files_of, require

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def large(repository: Repository, base: str) -> str:
    files = {f"d{number % 20}/f{number}": b"%d\n" % number for number in range(LARGE_FILES)}
    return repository.commit_files(files, parent=base, message="large")


def _warm(repository: Repository) -> list[Path]:
    return sorted((repository.workspaces / "warm").iterdir())


def test_a_few_files_are_written_and_many_are_mounted(repository: Repository, base: str, large: str) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    few, many = repository.workspace(base), repository.workspace(large)
    assert (few.kind, few.reason) == (WorkspaceKind.TREE, "8 files are few")
    assert (many.kind, many.reason) == (WorkspaceKind.OVERLAY, "1028 files are many")
    assert len(files_of(many.path)) == LARGE_FILES + len(SEED)


def test_without_mounts_many_files_are_written_and_the_reason_is_told() -> None:
    kind, reason = choose(None, 5000, lambda: "Operation not permitted")
    assert kind is WorkspaceKind.TREE
    assert reason == "5000 files are many, but overlay mounts are not possible here: Operation not permitted"
    with pytest.raises(KindUnavailable, match="Operation not permitted"):
        choose(WorkspaceKind.OVERLAY, 5, lambda: "Operation not permitted")


def test_a_process_that_may_not_mount_falls_back(repository: Repository, large: str) -> None:
    """As nobody, in a directory that nobody may write."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    program = (
        "import os, sys; from pathlib import Path; from ratchet.workspaces import Repository\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "with Repository.open(Path(sys.argv[1]), workspaces=Path(sys.argv[2])) as repository:\n"
        "    workspace = repository.workspace(sys.argv[3])\n"
        "    print(workspace.kind, '|', workspace.reason, '|', len(list(workspace.path.rglob('f*'))))\n"
    )
    elsewhere = Path("/tmp") / f"ratchet-test-{os.getpid()}"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    try:
        subprocess.run(["cp", "-a", str(repository.path), str(elsewhere / "repo.git")], check=True)
        subprocess.run(["chmod", "-R", "a+rwX", str(elsewhere)], check=True)
        done = subprocess.run(
            [sys.executable, "-c", program, str(elsewhere / "repo.git"), str(elsewhere / "w"), large],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", str(elsewhere)], check=True)
    assert done.returncode == 0, done.stderr
    kind, reason, found = done.stdout.strip().split(" | ")
    assert (kind, found) == ("tree", "1000")
    assert "not possible here: Operation not permitted" in reason


def test_near_commits_share_one_checkout_and_far_ones_do_not(repository: Repository, base: str) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    near = repository.commit_files(
        {"README.md": b"near\n", "docs/a b.txt": None}, parent=base, message="near"
    )
    far = repository.commit_files({f"f{n}": b"%d" % n for n in range(100)}, parent=base, message="far")
    first = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    second = repository.workspace(near, kind=WorkspaceKind.OVERLAY)
    assert len(_warm(repository)) == 1
    assert not second.commit("nothing").changed
    assert "docs/a b.txt" not in files_of(second.path)
    assert files_of(first.path) == SEED
    assert len(files_of(repository.workspace(far, kind=WorkspaceKind.OVERLAY).path)) == 104
    assert len(_warm(repository)) == 2


def test_shared_checkouts_stay_few_and_those_in_use_stay(repository: Repository) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    held = []
    for number in range(8):
        files = {f"n{number}/f{file}": b"%d" % file for file in range(70)}
        commit = repository.commit_files(files, parent=None, message=f"far {number}")
        workspace = repository.workspace(commit, kind=WorkspaceKind.OVERLAY)
        if number < 2:
            held.append(workspace)
        else:
            workspace.discard()
    assert len(_warm(repository)) <= 6
    assert [len(files_of(workspace.path)) for workspace in held] == [70, 70]


def test_what_is_written_never_reaches_the_shared_checkout(repository: Repository, base: str) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    workspace = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    (workspace.path / "README.md").write_text("mine\n")
    (workspace.path / "src/app.py").unlink()
    os.utime(workspace.path / "docs/a b.txt")
    [warm] = _warm(repository)
    assert files_of(warm / "files") == SEED
    workspace.reset()
    assert files_of(workspace.path) == SEED


def test_a_directory_that_was_removed_and_made_anew_holds_only_what_is_new(
    repository: Repository, base: str
) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    workspace = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    subprocess.run(["rm", "-r", str(workspace.path / "src")], check=True)
    (workspace.path / "src/deep").mkdir(parents=True)
    (workspace.path / "src/deep/only").write_text("only\n")
    made = workspace.commit("again")
    assert sorted(repository.list_files(made.hash)) == ["README.md", "docs/a b.txt", "src/deep/only"]


def test_a_file_that_the_shared_checkout_lacks_can_be_deleted(repository: Repository, base: str) -> None:
    """It lies only in the upper layer, where its end leaves no trace."""
    require(repository, WorkspaceKind.OVERLAY)
    held = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    near = repository.commit_files({"src/near": b"x\n", "other/near": b"x\n"}, parent=base, message="near")
    workspace = repository.workspace(near, kind=WorkspaceKind.OVERLAY)
    (workspace.path / "src/near").unlink()
    (workspace.path / "other/near").unlink()
    assert [(change.path, change.status) for change in workspace.changes()] == [
        ("other/near", "removed"),
        ("src/near", "removed"),
    ]
    assert files_of(held.path) == SEED


def test_a_directory_that_was_moved_is_committed_where_it_is(repository: Repository, base: str) -> None:
    require(repository, WorkspaceKind.OVERLAY)
    workspace = repository.workspace(base, kind=WorkspaceKind.OVERLAY)
    subprocess.run(["mv", str(workspace.path / "src"), str(workspace.path / "lib")], check=True)
    made = workspace.commit("moved")
    assert sorted(repository.list_files(made.hash)) == [
        "README.md",
        "docs/a b.txt",
        "lib/app.py",
        "lib/deep/er/data.bin",
    ]
