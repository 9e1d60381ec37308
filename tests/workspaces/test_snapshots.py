"""A commit is what `git add --all` would make of the directory, without reading what did not change."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.workspaces import Repository, WorkspaceKind
from tests.workspaces.conftest import SEED, require, tree_by_git

_NAMES = st.sampled_from(
    ["a", "b", "a.py", "a-b", "a b", "README.md", "src", "docs", "é", "a.d", "-x", ":x", "*"]
)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_EDITS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "program", "link", "directory", "ignore"]), _PATHS),
    max_size=12,
)


def _edit(directory: Path, what: str, path: str) -> None:
    """Do something to a path; what stands in the way is removed first."""
    target = directory
    for part in path.split("/")[:-1]:
        target /= part
        if target.is_symlink() or target.is_file():
            target.unlink()
        target.mkdir(exist_ok=True)
    target /= path.split("/")[-1]
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    match what:
        case "write":
            target.write_text(path)
        case "program":
            target.write_text(path)
            target.chmod(0o755)
        case "link":
            target.symlink_to("nowhere")
        case "directory":
            target.mkdir()
        case "ignore":
            target.with_name(".gitignore").write_text("a.py\n/b\nsrc/\n!a b\n\\*\n")


@pytest.mark.soak
@pytest.mark.parametrize("kind", list(WorkspaceKind))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=_EDITS)
def test_any_edits_are_committed_as_git_would(kind: WorkspaceKind, edits: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as place, Repository.create(Path(place) / "repo.git") as repository:
        require(repository, kind)
        first = repository.commit_files(SEED | {"a.d/b": b"b\n"}, parent=None, message="first")
        # An overlay of the second commit stands on the files of the first.
        repository.workspace(first, kind=kind)
        base = repository.commit_files(
            {"a/b": b"b\n", "src/a": b"a\n", "a.d/b": None}, parent=first, message="second"
        )
        workspace = repository.workspace(base, kind=kind)
        for what, path in edits:
            _edit(workspace.path, what, path)
        made = workspace.commit("edits")
        assert made.tree == tree_by_git(repository, workspace.path, start=base)
        repeated = repository.workspace(made.hash, kind=kind)
        assert not repeated.commit("nothing").changed


def test_a_change_within_the_same_tick_of_the_clock_is_seen(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    """Same size, written at once after the checkout: times alone could not tell."""
    for number in range(20):
        workspace = repository.workspace(base, kind=kind)
        (workspace.path / "README.md").write_text(f"hi {number:02d}\n")
        (workspace.path / "src/app.py").write_bytes(SEED["src/app.py"].replace(b"h", b"H"))
        assert len(workspace.changes()) == 2
        workspace.discard()


def test_a_file_whose_times_were_set_back_is_read_again(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    workspace = repository.workspace(base, kind=kind)
    time.sleep(0.05)
    file = workspace.path / "README.md"
    before = file.stat()
    file.write_text("hallo\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [change.path for change in workspace.changes()] == ["README.md"]


def test_a_file_that_a_patch_changed_is_not_taken_for_that_of_the_base(
    repository: Repository, base: str, kind: WorkspaceKind
) -> None:
    workspace = repository.workspace(base, kind=kind)
    for path in ("README.md", "src/app.py"):
        changed = repository.commit_files({path: b"patched\n"}, parent=base, message="patch")
        workspace.apply(repository.diff(base, changed))
        time.sleep(0.03)
    assert [change.path for change in workspace.changes()] == ["README.md", "src/app.py"]


@pytest.mark.soak
def test_unchanged_files_of_a_large_tree_are_not_read(repository: Repository, base: str) -> None:
    files = {f"d{number % 20}/f{number}": b"%d\n" % number for number in range(2000)}
    large = repository.commit_files(files, parent=base, message="large")
    workspace = repository.workspace(large, kind=WorkspaceKind.TREE)
    before = _reads()
    (workspace.path / "README.md").write_text("changed\n")
    assert workspace.commit("one").changed
    assert _reads() - before < 1000


def _reads() -> int:
    """System calls of this process that read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split(": ")[1] for line in lines if line.startswith("syscr")))
