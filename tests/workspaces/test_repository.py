"""Repositories without a workspace: commits, history, files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.workspaces import Identity, Repository, UnsafePath, WorkspaceKind
from tests.workspaces.conftest import SEED, files_of, fsck, git


def test_a_new_repository_is_bare_and_whole(tmp_path: Path) -> None:
    with Repository.create(tmp_path / "deep/repo.git") as repository:
        assert repository.bare
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["repo.git"]
    with pytest.raises(Conflict, match="exists already"):
        Repository.create(tmp_path / "deep/repo.git")


def test_a_clone_and_a_linked_worktree_of_it_can_be_opened(clone: Path, tmp_path: Path) -> None:
    git(clone, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    for path in (clone, tmp_path / "linked"):
        with Repository.open(path) as repository:
            assert not repository.bare
            assert repository.resolve("main") == git(clone, "rev-parse", "HEAD")


@pytest.mark.parametrize("format", ["sha1", "sha256"])
def test_both_kinds_of_hashes_are_understood(tmp_path: Path, format: str) -> None:
    git(tmp_path, "init", "--quiet", "--bare", f"--object-format={format}", "repo.git")
    with Repository.open(tmp_path / "repo.git") as repository:
        first = repository.commit_files(SEED, parent=None, message="first")
        workspace = repository.workspace(first)
        (workspace.path / "README.md").write_text("changed\n")
        made = workspace.commit("second")
        repository.advance("refs/heads/main", made.hash, expected=None)
        assert len(made.hash) == {"sha1": 40, "sha256": 64}[format]
        assert fsck(repository.path) == ""


def test_packed_objects_are_read_and_not_written_again(clone: Path) -> None:
    git(clone, "gc", "--quiet")
    with Repository.open(clone) as repository:
        workspace = repository.workspace("main")
        assert files_of(workspace.path) == SEED
        (workspace.path / "new").write_text("new\n")
        workspace.commit("new")
    assert git(clone, "count-objects").startswith("3 objects")


def test_files_are_set_and_deleted_without_a_workspace(repository: Repository, base: str) -> None:
    made = repository.commit_files(
        {"src/deep/er/data.bin": None, "src/app.py": b"new\n", "a/b/c": b"c\n", "absent": None},
        parent=base,
        message="edit",
    )
    assert sorted(repository.list_files(made)) == ["README.md", "a/b/c", "docs/a b.txt", "src/app.py"]
    assert [(change.path, change.status) for change in repository.changes(base, made)] == [
        ("a/b/c", "added"),
        ("src/app.py", "changed"),
        ("src/deep/er/data.bin", "removed"),
    ]
    assert fsck(repository.path) == ""


def test_a_file_keeps_its_mode(repository: Repository, base: str) -> None:
    workspace = repository.workspace(base)
    (workspace.path / "README.md").chmod(0o755)
    program = workspace.commit("program").hash
    made = repository.commit_files({"README.md": b"still\n"}, parent=program, message="edit")
    assert repository.list_files(made)["README.md"].mode == 0o100755


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/./b", ".git/config", "a/.GIT/x", "", "a\nb", "a/"])
def test_a_path_that_could_leave_the_tree_is_misuse(repository: Repository, base: str, path: str) -> None:
    with pytest.raises(Misuse, match="the path"):
        repository.commit_files({path: b"x"}, parent=base, message="hostile")
    with pytest.raises(Misuse, match="the path"):
        repository.read_file(base, path)


def test_a_file_that_git_would_refuse_is_refused(repository: Repository, base: str) -> None:
    modules = b'[submodule "x"]\n\tpath = x\n\turl = ./x\n\tupdate = !rm -rf .\n'
    with pytest.raises(UnsafePath, match="would be run"):
        repository.commit_files({".gitmodules": modules}, parent=base, message="hostile")
    fine = modules.partition(b"\tupdate")[0]
    assert repository.commit_files({".gitmodules": fine}, parent=base, message="fine")
    assert fsck(repository.path) == ""


def test_a_file_below_another_file_is_misuse(repository: Repository, base: str) -> None:
    with pytest.raises(Misuse, match="below another file"):
        repository.commit_files({"a": b"x", "a/b": b"x"}, parent=base, message="both")


def test_lines_that_came_and_went_are_counted_by_path(repository: Repository) -> None:
    old = repository.commit_files({"a.txt": b"1\n2\n3\n", "gone.txt": b"1\n"}, parent=None, message="old")
    new = {"a.txt": b"1\ntwo\n3\n4\n", "gone.txt": None, "\N{SNOWMAN} b.bin": b"\0\1"}
    commit = repository.commit_files(new, parent=old, message="new")
    assert repository.line_counts(old, commit) == {
        "a.txt": (2, 1),
        "gone.txt": (0, 1),
        "\N{SNOWMAN} b.bin": None,
    }
    assert repository.line_counts(old, old) == {}


def test_a_diff_is_what_git_shows(repository: Repository, base: str) -> None:
    made = repository.commit_files({"README.md": b"changed\n"}, parent=base, message="edit")
    assert "-hello\n+changed\n" in repository.diff(base, made)
    assert repository.diff(base, base) == ""


def test_history_is_told_from_the_newest(repository: Repository, base: str) -> None:
    made = base
    for number in range(5):
        made = repository.commit_files(
            {"n": b"%d" % number}, parent=made, message=f"number {number}", at=number
        )
    entries = repository.log(made, limit=3)
    assert [(entry.message, entry.at) for entry in entries] == [
        ("number 4\n", 4),
        ("number 3\n", 3),
        ("number 2\n", 2),
    ]
    assert entries[0].author == "Ratchet <ratchet@localhost>"


def test_ancestry(repository: Repository, base: str) -> None:
    made = repository.commit_files({"a": b"a"}, parent=base, message="a")
    other = repository.commit_files({"b": b"b"}, parent=base, message="b")
    assert repository.is_ancestor(base, made)
    assert repository.is_ancestor(made, made)
    assert not repository.is_ancestor(made, other)
    assert not repository.is_ancestor(made, base)


@pytest.mark.parametrize(
    "revision", ["nothing", "1" * 40, "best~5", "-1", "--all", "best:README.md", "\udcff"]
)
def test_what_names_no_commit_is_not_found(repository: Repository, revision: str) -> None:
    with pytest.raises(NotFound, match="commit"):
        repository.resolve(revision)


@pytest.mark.parametrize("revision", ["", "best\nbest", "a\0b"])
def test_what_cannot_name_a_commit_is_misuse(repository: Repository, revision: str) -> None:
    with pytest.raises(Misuse, match="does not name a commit"):
        repository.resolve(revision)


def test_another_kind_of_object_is_no_commit(repository: Repository) -> None:
    for name in ("best^{tree}", "best:README.md"):
        with pytest.raises(NotFound, match="commit"):
            repository.resolve(git(repository.path, "rev-parse", name))


def test_an_empty_file_that_git_reads_is_fine(repository: Repository, base: str) -> None:
    made = repository.commit_files({".gitattributes": b"", ".gitmodules": b""}, parent=base, message="empty")
    assert repository.read_file(made, ".gitmodules") == b""


@pytest.mark.parametrize("path", ["absent", "src", "README.md/below"])
def test_a_file_that_is_none_is_not_found(repository: Repository, base: str, path: str) -> None:
    with pytest.raises(NotFound, match=path):
        repository.read_file(base, path)


def test_a_message_that_a_commit_cannot_hold_does_not_lose_the_work(
    repository: Repository, base: str
) -> None:
    made = repository.commit_files({"a": b"a"}, parent=base, message="nul\0 and \ud800\n\n")
    assert repository.log(made)[0].message == "nul\N{REPLACEMENT CHARACTER} and ?\n"
    assert fsck(repository.path) == ""


@pytest.mark.parametrize("name", ["", "  ", "Eve <eve>", "two\nlines"])
def test_an_identity_that_would_forge_a_commit_is_misuse(name: str) -> None:
    with pytest.raises(Misuse, match="cannot stand in a commit"):
        Identity(name, "eve@example.org")


@pytest.mark.parametrize("name", ["", "../up", "Upper", "a/b"])
def test_a_workspace_name_that_is_no_name_is_misuse(repository: Repository, base: str, name: str) -> None:
    with pytest.raises(Misuse, match="cannot be called"):
        repository.workspace(base, name=name)


def test_a_directory_of_workspaces_serves_one_repository(
    repository: Repository, base: str, clone: Path
) -> None:
    repository.workspace(base)
    with (
        Repository.open(clone, workspaces=repository.workspaces) as other,
        pytest.raises(Misuse, match="holds"),
    ):
        other.workspace("main")


def test_a_dirty_clone_is_never_touched_and_says_what_is_not_committed(clone: Path) -> None:
    (clone / "README.md").write_text("work of a person\n")
    (clone / "new file").touch()
    git(clone, "rm", "--quiet", "--cached", "docs/a b.txt")
    before = git(clone, "status", "--porcelain"), files_of(clone), (clone / ".git/index").read_bytes()
    with Repository.open(clone) as repository:
        for kind in (WorkspaceKind.TREE, WorkspaceKind.WORKTREE):
            workspace = repository.workspace("main", kind=kind)
            (workspace.path / "README.md").write_text("changed\n")
            repository.advance(f"refs/heads/{kind}", workspace.commit("change").hash, expected=None)
            workspace.discard()
        repository.prune()
        assert repository.uncommitted() == ["README.md", "docs/", "docs/a b.txt", "new file"]
    assert (
        git(clone, "status", "--porcelain"),
        files_of(clone),
        (clone / ".git/index").read_bytes(),
    ) == before


def test_a_linked_worktree_has_its_own_head_and_index(clone: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(clone, "worktree", "add", "--quiet", "-b", "other", str(linked))
    git(linked, "commit", "--quiet", "--allow-empty", "-m", "other")
    (linked / "staged").touch()
    git(linked, "add", "staged")
    with Repository.open(linked) as repository, Repository.open(clone) as main:
        assert repository.resolve("HEAD") == git(linked, "rev-parse", "HEAD") != main.resolve("HEAD")
        assert (repository.uncommitted(), main.uncommitted()) == (["staged"], [])


def test_a_changed_mode_is_uncommitted_work(clone: Path) -> None:
    (clone / "README.md").chmod(0o755)
    with Repository.open(clone) as repository:
        assert repository.uncommitted() == ["README.md"]


def test_a_touched_but_equal_file_is_not_dirty(clone: Path) -> None:
    subprocess.run(["touch", "-d", "2001-01-01", str(clone / "README.md")], check=True)
    with Repository.open(clone) as repository:
        assert repository.uncommitted() == []
