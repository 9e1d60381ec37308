"""Nothing that a person, a repository or a session has set runs here or changes a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import RatchetError
from ratchet.workspaces import Repository, WorkspaceKind
from tests.workspaces.conftest import SEED, files_of, git

_TRAP = "touch {trap}; cat"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A file that exists only if something ran that must not."""
    return tmp_path / "sprung"


def _set_traps(clone: Path, trap: Path) -> None:
    hooks = clone / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (hooks / name).chmod(0o755)
    (clone / ".git/monitor").write_text(f"#!/bin/sh\ntouch {trap}\n")
    (clone / ".git/monitor").chmod(0o755)
    command = _TRAP.format(trap=trap)
    for key, value in {
        "core.fsmonitor": str(clone / ".git/monitor"),
        "core.autocrlf": "true",
        "core.eol": "crlf",
        "core.pager": command,
        "core.sshCommand": command,
        "core.editor": command,
        "diff.external": command,
        "diff.trap.textconv": command,
        "diff.trap.command": command,
        "filter.trap.clean": command,
        "filter.trap.smudge": command,
        "filter.trap.process": command,
        "filter.trap.required": "true",
        "gpg.program": command,
        "commit.gpgSign": "true",
        "log.showSignature": "true",
        "extensions.partialClone": "evil",
        "remote.evil.url": f"ext::sh -c touch% {trap}",
        "protocol.ext.allow": "always",
        "core.excludesFile": str(clone / ".git/excludes"),
    }.items():
        git(clone, "config", key, value)
    (clone / ".git/excludes").write_text("*\n")
    (clone / ".git/info").mkdir(exist_ok=True)
    (clone / ".git/info/exclude").write_text("*\n")
    (clone / ".git/info/attributes").write_text("* filter=trap diff=trap text eol=crlf ident\n")


@pytest.mark.parametrize("kind", [WorkspaceKind.TREE, WorkspaceKind.WORKTREE])
def test_a_repository_full_of_traps_springs_none(clone: Path, trap: Path, kind: WorkspaceKind) -> None:
    _set_traps(clone, trap)
    with Repository.open(clone) as repository:
        base = repository.resolve("main")
        workspace = repository.workspace("main", kind=kind)
        assert files_of(workspace.path) == SEED
        (workspace.path / ".gitattributes").write_text("* filter=trap text eol=crlf\n")
        (workspace.path / "new.txt").write_bytes(b"one\r\ntwo\n$Id$\n")
        made = workspace.commit("new")
        assert repository.read_file(made.hash, "new.txt") == b"one\r\ntwo\n$Id$\n"
        other = repository.workspace("main", kind=kind)
        other.apply(workspace.diff())
        assert other.commit("applied").tree == made.tree
        assert repository.diff(base, made.hash)
        repository.log(made.hash)
        repository.is_ancestor(base, made.hash)
        repository.uncommitted()
        repository.advance("refs/heads/kept", made.hash, expected=None)
        # Git may say first that it would have to fetch it.
        with pytest.raises(RatchetError, match=r"1111|partial clone"):
            repository.resolve("1" * 40)
        workspace.reset()
        workspace.discard()
        repository.prune()
    assert not trap.exists()


def test_the_environment_of_the_process_does_not_matter(
    clone: Path, tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "--quiet", "other")
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_OBJECT_DIRECTORY": str(other / "objects"),
        "GIT_NAMESPACE": "elsewhere",
        "GIT_AUTHOR_NAME": "Eve",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_EXTERNAL_DIFF": f"touch {trap}",
        "GIT_TRACE": str(trap),
    }.items():
        monkeypatch.setenv(name, value)
    with Repository.open(clone) as repository:
        workspace = repository.workspace("main", kind=WorkspaceKind.WORKTREE)
        (workspace.path / "README.md").write_bytes(b"a\r\n")
        made = workspace.commit("change")
        assert repository.read_file(made.hash, "README.md") == b"a\r\n"
        assert repository.log(made.hash)[0].author == "Ratchet <ratchet@localhost>"
        assert "+a" in repository.diff("main", made.hash)
    assert not trap.exists()


def test_the_settings_of_the_user_do_not_matter(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n\texcludesFile = ~/ignored\n[user]\n\tname = Eve\n"
    )
    (tmp_path / "ignored").write_text("*.txt\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with Repository.open(clone) as repository:
        workspace = repository.workspace("main")
        (workspace.path / ".gitignore").write_text("*.log\n")
        (workspace.path / "new.txt").write_text("new\n")
        made = workspace.commit("change")
        assert sorted(change.path for change in repository.changes("main", made.hash)) == [
            ".gitignore",
            "new.txt",
        ]


def test_a_replaced_object_is_not_believed(repository: Repository, base: str) -> None:
    """`git replace` would let a session show other content under a judged hash."""
    evil = repository.commit_files({"README.md": b"evil\n"}, parent=base, message="evil")
    git(repository.path, "replace", base, evil)
    with Repository.open(repository.path) as fresh:
        assert fresh.read_file(base, "README.md") == SEED["README.md"]
        assert files_of(fresh.workspace(base).path) == SEED
