"""Real repositories: bare remotes with a history, and clones of people."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(place: Path, *words: str) -> str:
    """What a git command prints, run as a person would."""
    done = subprocess.run(
        ["git", *words], cwd=place, env={**os.environ, **_WHO}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_remote(place: Path) -> Path:
    """A bare repository whose branch main has one commit."""
    place.parent.mkdir(parents=True, exist_ok=True)
    work = make_local(place.with_name(f"{place.name}-work"))
    git(work.parent, "clone", "--quiet", "--bare", str(work), str(place))
    return place


def make_local(place: Path) -> Path:
    """A person's repository, without a remote, whose branch main has one commit."""
    place.mkdir(parents=True)
    git(place, "init", "--quiet", "--initial-branch=main")
    (place / "README.md").write_text("# Demo\n")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "begin")
    return place


def commit_on(remote: Path, branch: str, *, name: str, parent: str | None = None) -> str:
    """A commit with one new file on a branch of a bare repository; its hash."""
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"],
        cwd=remote,
        input=name.encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    tree = subprocess.run(
        ["git", "mktree"], cwd=remote, input=f"100644 blob {blob.strip()}\t{name}\n".encode(), capture_output=True,
        check=True,
    ).stdout.decode().strip()  # fmt: skip
    parents = ["-p", parent] if parent else []
    commit = git(remote, "commit-tree", tree, *parents, "-m", name)
    git(remote, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def head(remote: Path, branch: str = "main") -> str:
    return git(remote, "rev-parse", f"refs/heads/{branch}")


def branches(remote: Path) -> list[str]:
    return git(remote, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
