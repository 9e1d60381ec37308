"""The files of an agent's version: from a directory into a commit, and from a commit into a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ratchet.agents.contract import IGNORED, UNTRACKED
from ratchet.kernel import RatchetError
from ratchet.workspaces import Repository
from ratchet.workspaces.git import Git, find_git

_MOST_FILES = 2_000
_MOST_BYTES = 64 * 1024 * 1024
_IGNORE_FILE = ".gitignore"
_CONFIGURATION = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
[remote "origin"]
\turl = ../repo.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
"""
# Where a clone keeps what decides what git does in it. The index and reflogs may change by looking.
_DECIDING = ("HEAD", "config", "packed-refs", "hooks", "info", "refs", "objects/info")


class Unfit(RatchetError):
    """What an engine left cannot become a version."""

    http_status = 422


def read_tree(directory: Path) -> dict[str, bytes]:
    """Every file that belongs to the version, by its path. Raises `Unfit` for what git could not keep."""
    found: dict[str, bytes] = {}
    size = 0
    for path in _files(directory, directory):
        name = path.relative_to(directory).as_posix()
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found[name] = file.read(_MOST_BYTES - size + 1)
        size += len(found[name])
        if size > _MOST_BYTES or len(found) > _MOST_FILES:
            raise Unfit(
                f"the agent has more than {_MOST_FILES} files or {_MOST_BYTES} bytes",
                hint="keep data out of its directory",
            )
    found[_IGNORE_FILE] = IGNORED.encode()
    return found


def _files(directory: Path, top: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name in UNTRACKED or (directory == top and entry.name == _IGNORE_FILE):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), top)
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield Path(entry.path)
            else:
                name = Path(entry.path).relative_to(top)
                raise Unfit(f"{name} is neither a file nor a directory", hint="use plain files only")


def commit_tree(
    repository: Repository,
    files: Mapping[str, bytes],
    *,
    parent: str | None,
    message: str,
    at: int | None = None,
) -> str:
    """A commit with exactly these files."""
    before = {} if parent is None else repository.list_files(parent)
    gone = dict.fromkeys(before.keys() - files.keys())
    return repository.commit_files({**gone, **files}, parent=parent, message=message, at=at)


def check_out(repository: Repository, commit: str, directory: Path) -> None:
    """Fill `directory`, which is made, with the files of a commit, and make it a clone that stands at it."""
    directory.mkdir()
    for path, entry in repository.list_files(commit).items():
        if not entry.is_file:
            raise Unfit(f"{path} is not a file, and an agent consists of files")
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(repository.read_file(commit, path))
    git = _clone(directory)
    (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    Git(find_git(), git).run("read-tree", commit)


def begin_tree(directory: Path) -> None:
    """An empty directory that is a repository, for the first version."""
    directory.mkdir()
    (directory / _IGNORE_FILE).write_text(IGNORED)
    _clone(directory)


def _clone(directory: Path) -> Path:
    """The `.git` of a version. It borrows the objects of the agent's repository, so that it does not grow with them."""
    git = directory / ".git"
    for inside in ("objects/info", "refs/heads"):
        (git / inside).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "objects" / "info" / "alternates").write_text("../../../repo.git/objects\n")
    (git / "config").write_text(_CONFIGURATION)
    return git


def sync_tree(directory: Path) -> None:
    """Have everything in a directory on the disk before anything says that it is there."""
    for place, _, names in os.walk(directory, topdown=False):
        for path in (*(Path(place, name) for name in names), Path(place)):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def git_files(directory: Path) -> dict[str, bytes | None]:
    """What decides what git does in a clone, to see whether somebody has changed it."""
    top = directory / ".git"
    if top.is_symlink() or not top.is_dir():
        return {}
    found: dict[str, bytes | None] = {}
    for name in _DECIDING:
        path = top / name
        inside = sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else [path]
        for each in inside:
            plain = each.is_file() and not each.is_symlink()
            found[each.relative_to(top).as_posix()] = each.read_bytes() if plain else None
    return found
