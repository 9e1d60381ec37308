"""Putting starter assets where they are missing: into a working tree, or into a commit."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import RatchetError
from ratchet.projects.assets.rendering import GITHUB_FILE, GITLAB_FILE, render, required_jobs
from ratchet.projects.discovery import Facts
from ratchet.projects.discovery.provider import workflow_files
from ratchet.projects.discovery.tree import Tree
from ratchet.workspaces import Identity, Repository

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What opening a directory says of a file or a link in its place.
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP)
_WORKFLOWS = ".github/workflows/"
MESSAGE = "chore(ci): add the scripts that check a change"


@dataclass(frozen=True, slots=True)
class Written:
    """Paths from the top of the tree: made, there already and left as they are, or behind a link and left alone.

    `required_checks` are what the CI file that was made will report for each change.
    """

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    required_checks: tuple[str, ...] = ()


def asset_files(facts: Facts, provider: str | None) -> dict[str, bytes]:
    """Every asset for a repository, by its path. Without a provider there is no CI file."""
    return {path: text.encode() for path, text in render(facts, provider).items()}


def write_assets(tree: Path, facts: Facts, *, provider: str | None) -> Written:
    """Write the assets that are missing, scripts executable. Overwrites nothing, and follows no link.

    Raises `RatchetError` where the tree cannot be written.
    """
    created: list[str] = []
    kept: list[str] = []
    refused: list[str] = []
    has_workflows = bool(workflow_files(Tree(tree)))
    for path, content in asset_files(facts, provider).items():
        if path == GITHUB_FILE and has_workflows:
            kept.append(path)
            continue
        try:
            (created if _write_new(tree, path, content) else kept).append(path)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise RatchetError(
                    f"{tree / path} cannot be written: {error.strerror}",
                    hint="mend its permissions or its disk",
                ) from error
            refused.append(path)
    named = any(path in created for path in (GITHUB_FILE, GITLAB_FILE))
    return Written(tuple(created), tuple(kept), tuple(refused), required_jobs(facts) if named else ())


def commit_assets(
    repository: Repository,
    base: str,
    facts: Facts,
    provider: str | None,
    *,
    message: str = MESSAGE,
    author: Identity | None = None,
    at: int | None = None,
) -> str | None:
    """A commit on top of `base` with the assets that it lacks; nothing if it has them all. Moves no ref."""
    there = set(repository.list_files(base))
    folders = {path[:cut] for path in there for cut, sign in enumerate(path) if sign == "/"}
    has_workflows = any(path.startswith(_WORKFLOWS) and path.endswith((".yml", ".yaml")) for path in there)
    missing = {
        path: content
        for path, content in asset_files(facts, provider).items()
        if path not in there
        and path not in folders
        and not any(path[:cut] in there for cut, sign in enumerate(path) if sign == "/")
        and not (path == GITHUB_FILE and has_workflows)
    }
    if not missing:
        return None
    programs = [path for path in missing if path.endswith(".sh")]
    return repository.commit_files(
        missing, parent=base, message=message, author=author, at=at, executable=programs
    )


def _write_new(tree: Path, path: str, content: bytes) -> bool:
    """Make a file appear whole; false if something of that name is there."""
    with _folder(tree, path.split("/")[:-1]) as folder:
        name = path.rpartition("/")[2]
        if _exists(folder, name):
            return False
        unfinished = f".{name}.ratchet-new"
        with contextlib.suppress(FileNotFoundError):
            # Left by a process that died here.
            os.unlink(unfinished, dir_fd=folder)
        descriptor = os.open(unfinished, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(descriptor, 0o755 if name.endswith(".sh") else 0o644)
            with contextlib.suppress(FileExistsError):
                # Unlike a rename, a link never replaces what somebody made meanwhile.
                os.link(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                return True
            return False
        finally:
            os.unlink(unfinished, dir_fd=folder)


@contextlib.contextmanager
def _folder(tree: Path, parts: list[str]) -> Iterator[int]:
    """A directory of the tree, made where it is missing, and reached without following a link."""
    held = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=held)
            deeper = os.open(part, _FOLDER, dir_fd=held)
            os.close(held)
            held = deeper
        yield held
    finally:
        os.close(held)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
