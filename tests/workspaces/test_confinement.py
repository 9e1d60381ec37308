"""What a candidate may leave in its workspace and must not get into a commit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.workspaces import (
    PatchRefused,
    Repository,
    TooLarge,
    TreeBounds,
    UnsafePath,
    Workspace,
    WorkspaceKind,
)
from tests.workspaces.conftest import fsck, git, require


def _nested_git(path: Path) -> None:
    (path / "src/.git").mkdir()


def _git_at_the_top(path: Path) -> None:
    (path / ".GIT").mkdir()


def _git_of_windows(path: Path) -> None:
    (path / "git~1").touch()


def _git_of_a_mac(path: Path) -> None:
    (path / ".g\u200cit").touch()


def _git_behind_a_backslash(path: Path) -> None:
    (path / "a\\.git").touch()


def _pipe(path: Path) -> None:
    os.mkfifo(path / "src/pipe")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)


def _not_text(path: Path) -> None:
    (path / os.fsdecode(b"caf\xe9")).touch()


def _control_character(path: Path) -> None:
    (path / "two\nlines").touch()


def _pipe_for_rules(path: Path) -> None:
    os.mkfifo(path / ".gitignore")
    (path / "new.txt").touch()


def _absolute(path: Path) -> None:
    (path / "link").symlink_to("/etc/passwd")


def _upwards(path: Path) -> None:
    (path / "src/link").symlink_to("../../elsewhere")


def _by_way_of_another(path: Path) -> None:
    (path / "src/here").symlink_to("deep")
    (path / "link").symlink_to("src/here/../../../elsewhere")


def _by_way_of_a_loop_back(path: Path) -> None:
    """Each link stays inside by its letters; together they lead out."""
    (path / "x").mkdir()
    (path / "x/y").symlink_to(".")
    (path / "link").symlink_to("x/y/../..")


def _in_circles(path: Path) -> None:
    (path / "a").symlink_to("b")
    (path / "b").symlink_to("a")


def _long_attributes(path: Path) -> None:
    (path / "src/.gitattributes").write_text("x" * 3000 + " text\n")


def _modules_that_run(path: Path) -> None:
    (path / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = -u./evil\n')


def _modules_that_lead_outside(path: Path) -> None:
    (path / ".gitModules").write_text('[submodule "../x"]\n\tpath = x\n\turl = ./x\n')


def _modules_behind_a_link(path: Path) -> None:
    (path / ".gitmodules").symlink_to("README.md")


def _into_git(path: Path) -> None:
    (path / "link").symlink_to(".git/config")


@pytest.mark.parametrize(
    "leave",
    [
        _nested_git,
        _git_at_the_top,
        _git_of_windows,
        _git_of_a_mac,
        _git_behind_a_backslash,
        _pipe,
        _socket,
        _not_text,
        _control_character,
        _pipe_for_rules,
        _absolute,
        _upwards,
        _by_way_of_another,
        _by_way_of_a_loop_back,
        _in_circles,
        _into_git,
        _long_attributes,
        _modules_that_run,
        _modules_that_lead_outside,
        _modules_behind_a_link,
    ],
)
def test_what_must_not_be_committed_is_refused_by_its_path(
    repository: Repository, workspace: Workspace, leave: Callable[[Path], None]
) -> None:
    before = git(repository.path, "count-objects")
    (workspace.path / "fine.txt").write_text("fine\n")
    leave(workspace.path)
    with pytest.raises(UnsafePath) as caught:
        workspace.commit("hostile")
    assert caught.value.path in str(caught.value).encode().decode("unicode_escape", "replace")
    assert caught.value.hint
    assert git(repository.path, "count-objects") == before
    assert not list((repository.path / "objects").glob("tmp_obj_*"))


def test_a_device_is_refused(repository: Repository, workspace: Workspace) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make devices")
    os.mknod(workspace.path / "src/null", 0o600 | 0o020000, os.makedev(1, 3))
    with pytest.raises(UnsafePath, match="src/null"):
        workspace.commit("hostile")


def test_links_that_stay_inside_are_fine(repository: Repository, workspace: Workspace) -> None:
    (workspace.path / "src/up").symlink_to("../README.md")
    (workspace.path / "dangling").symlink_to("src/not/there/../yet")
    (workspace.path / "chain").symlink_to("src/up")
    assert workspace.commit("links").changed
    assert fsck(repository.path) == ""


def test_links_may_lead_outside_where_the_bounds_say_so(
    tmp_path: Path, repository: Repository, base: str
) -> None:
    bounds = TreeBounds(outward_links=True)
    with Repository.open(repository.path, workspaces=tmp_path / "elsewhere", bounds=bounds) as lax:
        workspace = lax.workspace(base)
        (workspace.path / "link").symlink_to("/usr/share")
        assert workspace.commit("link").changed


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (TreeBounds(file_bytes=1000), "'big' is too large a file"),
        (TreeBounds(total_bytes=3000), "too large"),
        (TreeBounds(files=12), "more than 12 files"),
        (TreeBounds(depth=5), "directories deep"),
    ],
)
@pytest.mark.parametrize("kind", list(WorkspaceKind))
def test_beyond_the_bounds_is_refused(
    tmp_path: Path, repository: Repository, base: str, kind: WorkspaceKind, bounds: TreeBounds, words: str
) -> None:
    with Repository.open(repository.path, workspaces=tmp_path / "elsewhere", bounds=bounds) as bounded:
        require(bounded, kind)
        workspace = bounded.workspace(base, kind=kind)
        (workspace.path / "big").write_bytes(b"x" * 4000)
        (workspace.path / "a/b/c/d/e/f").mkdir(parents=True)
        (workspace.path / "a/b/c/d/e/f/g").touch()
        with pytest.raises(TooLarge, match=words) as caught:
            workspace.commit("large")
        assert caught.value.bound in (caught.value.hint or "")


def test_a_link_put_in_place_of_the_workspace_is_not_followed(
    repository: Repository, base: str, tmp_path: Path
) -> None:
    workspace = repository.workspace(base, kind=WorkspaceKind.TREE)
    workspace.path.rename(workspace.path.with_name("moved"))
    workspace.path.symlink_to(tmp_path)
    with pytest.raises(UnsafePath, match="replaced"):
        workspace.commit("hostile")
    with pytest.raises(UnsafePath, match="replaced"):
        workspace.reset()
    workspace.discard()
    assert (tmp_path / "repo.git").exists()


def test_a_directory_that_becomes_a_link_cannot_lead_a_patch_outside(
    repository: Repository, workspace: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace.path / "docs/a b.txt").unlink()
    (workspace.path / "docs").rmdir()
    (workspace.path / "docs").symlink_to("../../../outside")
    patch = (
        "diff --git a/docs/x b/docs/x\nnew file mode 100644\n--- /dev/null\n+++ b/docs/x\n@@ -0,0 +1 @@\n+x\n"
    )
    with pytest.raises(PatchRefused, match="beyond a symbolic link"):
        workspace.apply(patch)
    assert list(outside.iterdir()) == []
