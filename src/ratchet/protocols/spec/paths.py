"""Paths in specs: which are safe, and which file they mean.

A path is looked for in the folder of the protocol first, then in the repository. Whoever asks says what there is, so
the same questions can be put to a commit and to a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from ratchet.workspaces import Repository
from ratchet.workspaces.names import unwanted_name

Exists = Callable[[str], bool]


def plain_path(path: str) -> str:
    """The path without parts that say nothing, such as `./`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def unsafe_path(path: str) -> str | None:
    """Why a path must not be used, or nothing if it may."""
    if "\0" in path:
        return "has a NUL in it"
    if path.startswith(("/", "\\")) or path[1:3] in (":\\", ":/"):
        return "is absolute"
    parts = plain_path(path).split("/")
    if ".." in path.replace("\\", "/").split("/"):
        return "leads out of its folder"
    return next((reason for reason in map(unwanted_name, parts) if reason is not None), None)


def candidates(path: str, root: str) -> tuple[str, ...]:
    """The paths in the repository that `path` may mean, the likeliest first. `root` is the protocol's folder."""
    plain = plain_path(path)
    return (str(PurePosixPath(root, plain)), plain) if root else (plain,)


def find_path(path: str, root: str, exists: Exists) -> str | None:
    """The file that `path` means, as a path in the repository; nothing if there is none."""
    return next((each for each in candidates(path, root) if exists(each)), None)


def files_of(paths: Iterable[str]) -> Exists:
    """The question put to a list of files."""
    return frozenset(paths).__contains__


def files_of_commit(repository: Repository, commit: str) -> Exists:
    """The question put to a commit. Links are no files: they may point anywhere."""
    return files_of(path for path, entry in repository.list_files(commit).items() if entry.is_file)


def files_below(directory: Path) -> Exists:
    """The question put to a directory. What a link leads out of it is not there."""
    top = directory.resolve()

    def exists(path: str) -> bool:
        if unsafe_path(path) is not None:
            return False
        found = (top / path).resolve()
        return found.is_relative_to(top) and found.is_file()

    return exists
