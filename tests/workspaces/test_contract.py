"""What every kind of workspace does alike."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ratchet.kernel import NotFound
from ratchet.workspaces import Identity, PatchRefused, Repository, Workspace, WorkspaceGone, WorkspaceKind
from tests.workspaces.conftest import SEED, files_of, fsck, git, tree_by_git


def test_it_holds_the_files_of_its_commit_byte_for_byte(
    workspace: Workspace, base: str, kind: WorkspaceKind
) -> None:
    assert files_of(workspace.path) == SEED
    assert (workspace.base, workspace.kind) == (base, kind)


def test_a_commit_takes_the_whole_tree_as_found(repository: Repository, workspace: Workspace) -> None:
    (workspace.path / "src/app.py").write_text("print('better')\n")
    (workspace.path / "new/place").mkdir(parents=True)
    (workspace.path / "new/place/file.txt").write_text("new\n")
    (workspace.path / "docs/a b.txt").unlink()
    (workspace.path / "README.md").chmod(0o755)
    (workspace.path / "link").symlink_to("src/app.py")
    made = workspace.commit("try something")
    listed = git(repository.path, "ls-tree", "-r", "--format=%(objectmode) %(path)", made.hash).splitlines()
    assert listed == [
        "100755 README.md",
        "120000 link",
        "100644 new/place/file.txt",
        "100644 src/app.py",
        "100644 src/deep/er/data.bin",
    ]
    assert repository.read_file(made.hash, "src/app.py") == b"print('better')\n"
    assert fsck(repository.path) == ""


def test_a_commit_stands_on_the_base(repository: Repository, workspace: Workspace, base: str) -> None:
    (workspace.path / "README.md").write_text("changed\n")
    made = workspace.commit("why it was changed")
    [entry, first] = repository.log(made.hash)
    assert (entry.parents, entry.message, first.hash) == ((base,), "why it was changed\n", base)
    assert (made.changed, made.own_commits) == (True, ())


def test_nothing_changed_is_said_and_makes_no_commit(
    repository: Repository, workspace: Workspace, base: str
) -> None:
    (workspace.path / "README.md").write_bytes(SEED["README.md"])
    (workspace.path / "empty").mkdir()
    before = git(repository.path, "count-objects")
    made = workspace.commit("nothing")
    assert (made.hash, made.changed) == (base, False)
    assert git(repository.path, "count-objects") == before


def test_author_and_time_decide_the_hash_whatever_the_kind(
    repository: Repository, workspace: Workspace, base: str
) -> None:
    (workspace.path / "README.md").write_text("changed\n")
    made = workspace.commit("same", author=Identity("Ada", "ada@example.org"), at=1_700_000_000)
    assert made.hash == repository.commit_files(
        {"README.md": b"changed\n"},
        parent=base,
        message="same",
        author=Identity("Ada", "ada@example.org"),
        at=1_700_000_000,
    )


def test_what_gitignore_names_is_left_out_but_tracked_files_stay(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    ignoring = repository.commit_files(
        {".gitignore": b"*.log\nbuild/\n!keep.log\n", "build/kept": b"tracked\n"},
        parent=base,
        message="ignore",
    )
    workspace = repository.workspace(ignoring, kind=kind)
    for name in ("a.log", "keep.log", "build/new", "src/b.log", "src/c.txt", "build/kept"):
        (workspace.path / name).write_text("written\n")
    assert {change.path: change.status for change in workspace.changes()} == {
        "build/kept": "changed",
        "keep.log": "added",
        "src/c.txt": "added",
    }


def test_an_ignored_directory_is_not_looked_into(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    ignoring = repository.commit_files({".gitignore": b"/cache\n"}, parent=base, message="ignore")
    workspace = repository.workspace(ignoring, kind=kind)
    (workspace.path / "cache/inner/.git").mkdir(parents=True)
    os.mkfifo(workspace.path / "cache/pipe")
    assert not workspace.commit("nothing new").changed


@pytest.mark.parametrize(
    "turn", ["file to directory", "directory to file", "directory to link", "link to file"]
)
def test_one_thing_may_take_the_place_of_another(
    repository: Repository, workspace: Workspace, turn: str
) -> None:
    path = workspace.path
    match turn:
        case "file to directory":
            (path / "README.md").unlink()
            (path / "README.md").mkdir()
            (path / "README.md/inside").write_text("x\n")
        case "directory to file":
            (path / "docs/a b.txt").unlink()
            (path / "docs").rmdir()
            (path / "docs").write_text("x\n")
        case "directory to link":
            (path / "docs/a b.txt").unlink()
            (path / "docs").rmdir()
            (path / "docs").symlink_to("src")
        case "link to file":
            (path / "docs/link").symlink_to("a b.txt")
            (path / "docs/link").unlink()
            (path / "docs/link").write_text("x\n")
    made = workspace.commit(turn)
    assert made.tree == tree_by_git(repository, path)


def test_changes_are_listed_without_writing_anything(repository: Repository, workspace: Workspace) -> None:
    before = git(repository.path, "count-objects")
    (workspace.path / "README.md").unlink()
    (workspace.path / "new.txt").write_text("new\n")
    (workspace.path / "src/app.py").chmod(0o755)
    assert [(change.path, change.status) for change in workspace.changes()] == [
        ("README.md", "removed"),
        ("new.txt", "added"),
        ("src/app.py", "changed"),
    ]
    assert git(repository.path, "count-objects") == before


def test_a_diff_applied_elsewhere_gives_the_same_tree(
    repository: Repository, workspace: Workspace, base: str, kind: WorkspaceKind
) -> None:
    (workspace.path / "src/app.py").write_text("no newline at the end")
    (workspace.path / "src/deep/er/data.bin").write_bytes(bytes(reversed(range(256))))
    (workspace.path / "docs/a b.txt").unlink()
    (workspace.path / "run").write_text("#!/bin/sh\n")
    (workspace.path / "run").chmod(0o755)
    other = repository.workspace(base, kind=kind)
    other.apply(workspace.diff())
    assert other.commit("there").tree == workspace.commit("here").tree
    assert files_of(other.path) == files_of(workspace.path)


def test_a_patch_that_does_not_apply_changes_nothing(workspace: Workspace) -> None:
    patch = workspace_patch("README.md", "other text", "changed")
    with pytest.raises(PatchRefused, match=r"README\.md"):
        workspace.apply(workspace_patch("src/app.py", "print('hello')", "fine") + patch)
    assert files_of(workspace.path) == SEED


@pytest.mark.parametrize("path", ["../outside", ".git/config", "/etc/outside", "src/../../outside"])
def test_a_patch_cannot_write_outside(workspace: Workspace, tmp_path: Path, path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchRefused):
        workspace.apply(patch)
    assert not (workspace.path.parent / "outside").exists()


def test_a_reset_brings_back_the_base(repository: Repository, workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace.path / "README.md").unlink()
    (workspace.path / "README.md").symlink_to(outside)
    (workspace.path / "src/new").mkdir()
    os.mkfifo(workspace.path / "src/new/pipe")
    workspace.reset()
    assert files_of(workspace.path) == SEED
    assert not workspace.commit("nothing").changed
    assert list(outside.iterdir()) == []


def test_discarding_leaves_nothing_and_may_be_repeated(repository: Repository, workspace: Workspace) -> None:
    (workspace.path / "src/locked").mkdir()
    (workspace.path / "src/locked/file").touch()
    (workspace.path / "src/locked").chmod(0o000)
    workspace.discard()
    workspace.discard()
    assert not workspace.path.exists()
    assert workspace.name not in " ".join(str(path) for path in repository.workspaces.rglob("*"))
    assert git(repository.path, "worktree", "list").count("\n") == 0
    with pytest.raises(WorkspaceGone, match="discarded"):
        workspace.commit("late")


def test_a_directory_deeper_than_any_path_is_discarded(workspace: Workspace) -> None:
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    workspace.discard()
    assert not workspace.path.exists()


def test_a_context_manager_discards(repository: Repository, base: str, kind: WorkspaceKind) -> None:
    with repository.workspace(base, kind=kind, name="trial-7") as workspace:
        path = workspace.path
        assert path.name.startswith("trial-7-")
    assert not path.exists()


def test_closing_the_repository_discards_what_is_open(repository: Repository, workspace: Workspace) -> None:
    repository.close()
    assert not workspace.path.exists()


def test_a_workspace_that_its_session_removed_is_said_to_be_gone(repository: Repository, base: str) -> None:
    workspace = repository.workspace(base, kind=WorkspaceKind.TREE)
    shutil.rmtree(workspace.path)
    with pytest.raises(WorkspaceGone, match="gone"):
        workspace.commit("late")
    workspace.discard()


def test_a_commit_that_does_not_exist_is_not_found(repository: Repository, kind: WorkspaceKind) -> None:
    with pytest.raises(NotFound, match="commit 1111"):
        repository.workspace("1" * 40, kind=kind)


def test_git_of_a_session_does_not_reach_the_repository_around_it(
    repository: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    """A home inside a person's clone is usual; a candidate's `git` must not find that clone."""
    git(tmp_path, "init", "--quiet")
    found = git(workspace.path, "rev-parse", "--show-toplevel", check=False, **workspace.environment)
    assert found == (str(workspace.path) if workspace.kind is WorkspaceKind.WORKTREE else "")


def workspace_patch(path: str, before: str, after: str) -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{before}\n+{after}\n"
