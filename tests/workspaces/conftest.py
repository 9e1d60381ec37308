"""Repositories to work on, and git itself to ask what is in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.workspaces import Repository, Workspace, WorkspaceKind

SEED = {
    "README.md": b"hello\n",
    "src/app.py": b"print('hello')\n",
    "src/deep/er/data.bin": bytes(range(256)),
    "docs/a b.txt": "naïve ✓\n".encode(),
}


def git(directory: Path, *words: str, check: bool = True, **environment: str) -> str:
    """What git, run as a person would but without that person's settings, prints."""
    clean = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }
    done = subprocess.run(
        ["git", "-C", str(directory), *words],
        capture_output=True,
        text=True,
        env=clean | environment,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def fsck(directory: Path) -> str:
    """Everything git finds wrong with a repository; nothing is the only good answer."""
    done = subprocess.run(
        ["git", "-C", str(directory), "fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(
        line for line in lines if "unborn branch" not in line and "No default references" not in line
    )


def tree_by_git(repository: Repository, directory: Path, *, start: str | None = None) -> str:
    """The tree that `git add --all` makes of a directory, with the files of `start` tracked."""
    (directory / ".git").unlink(missing_ok=True)
    where = {"GIT_DIR": str(repository.path), "GIT_WORK_TREE": str(directory)}
    index = {"GIT_INDEX_FILE": str(repository.path / "index-of-the-test")}
    (repository.path / "index-of-the-test").unlink(missing_ok=True)
    if start is not None:
        git(directory, "read-tree", start, **where, **index)
    git(directory, "add", "--all", **where, **index)
    return git(directory, "write-tree", **where, **index)


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, git's own left out."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink() and path.relative_to(directory).parts[0] != ".git"
    }


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """A bare repository with one commit on refs/heads/best."""
    with Repository.create(tmp_path / "repo.git") as made:
        first = made.commit_files(SEED, parent=None, message="first", at=1)
        made.advance("refs/heads/best", first, expected=None)
        try:
            yield made
        finally:
            made.prune()  # processes that a test killed leave mounts, which outlive the test's directory


@pytest.fixture
def base(repository: Repository) -> str:
    return repository.resolve("best")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A person's clone, clean, on the branch main."""
    directory = tmp_path / "clone"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    for name, content in SEED.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message=first")
    return directory


@pytest.fixture(params=list(WorkspaceKind))
def kind(request: pytest.FixtureRequest, repository: Repository) -> WorkspaceKind:
    """Every kind of workspace that this machine allows."""
    wanted: WorkspaceKind = request.param
    require(repository, wanted)
    return wanted


@pytest.fixture
def workspace(repository: Repository, base: str, kind: WorkspaceKind) -> Workspace:
    return repository.workspace(base, kind=kind)


def require(repository: Repository, kind: WorkspaceKind) -> None:
    refusal = repository.refusal(kind)
    if refusal is not None:
        pytest.skip(refusal)
