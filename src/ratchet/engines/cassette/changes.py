"""What a session did to the files of its workspace, and doing it again.

Files are seen as git sees them: their content, whether they may be executed, and where a symbolic link points. What
lies in `.git` is not a file of the workspace.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ratchet.kernel import RatchetError

_FILE, _PROGRAM, _LINK = "100644", "100755", "120000"
MODES = frozenset({_FILE, _PROGRAM, _LINK})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at one moment."""

    mode: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Change:
    """A file as it is after the session; without a mode it is gone."""

    path: str
    mode: str | None = None
    content: bytes = b""


def look(workspace: Path) -> dict[str, Entry]:
    """Every file below `workspace` by its relative path. Raises `OSError` for one that cannot be read."""
    return {path: Entry(_mode(file), _sha256(file)) for path, file in _files(workspace)}


def digest(files: Mapping[str, Entry]) -> str:
    """One hash for all of them."""
    lines = "".join(f"{files[path].mode} {files[path].sha256} {path}\0" for path in sorted(files))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def changes_since(before: Mapping[str, Entry], workspace: Path) -> list[Change]:
    """What is different now, with what is gone first: a directory may have become a file."""
    after = look(workspace)
    gone = [Change(path) for path in sorted(before.keys() - after.keys())]
    made = sorted(path for path, entry in after.items() if before.get(path) != entry)
    return gone + [Change(path, after[path].mode, _content(workspace / path)) for path in made]


def remake(workspace: Path, changes: Iterable[Change]) -> None:
    """Do the same changes again. Raises `RatchetError` for a path that leads out of the workspace, or into `.git`."""
    for change in changes:
        *parents, name = _parts(change.path)
        with _directories(workspace, parents, make=change.mode is not None) as chain:
            if chain is not None:
                _apply(change, name, chain, parents)


def _apply(change: Change, name: str, chain: list[int], parents: list[str]) -> None:
    directory = chain[-1]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    if change.mode is None:
        # Like git, leave no directory that has become empty.
        with contextlib.suppress(OSError):
            for parent, above in zip(reversed(parents), reversed(chain[:-1]), strict=True):
                os.rmdir(parent, dir_fd=above)
    elif change.mode == _LINK:
        os.symlink(change.content, os.fsencode(name), dir_fd=directory)
    else:
        mode = 0o777 if change.mode == _PROGRAM else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, mode, dir_fd=directory), "wb") as file:
            file.write(change.content)


@contextlib.contextmanager
def _directories(workspace: Path, parents: list[str], *, make: bool) -> Iterator[list[int] | None]:
    """Open each directory on the way, never through a symbolic link; nothing if one is not there nor to be made."""
    with contextlib.ExitStack() as opened:
        chain: list[int] = []
        try:
            chain.append(_opened(opened, workspace, None, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for parent in parents:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(parent, dir_fd=chain[-1])
                chain.append(_opened(opened, parent, chain[-1], _DIRECTORY))
        except FileNotFoundError:
            yield None
            return
        yield chain


def _opened(stack: contextlib.ExitStack, path: str | Path, directory: int | None, flags: int) -> int:
    descriptor = os.open(path, flags, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor


def _parts(path: str) -> list[str]:
    pure = PurePosixPath(path)
    parts = list(pure.parts)
    if (
        not parts
        or pure.is_absolute()
        or ".." in parts
        or ".git" in (each.lower() for each in parts)
        or "\0" in path
    ):
        raise RatchetError(f"the path {path!r} is not one of a file in the workspace")
    return parts


def _files(workspace: Path) -> Iterator[tuple[str, Path]]:
    for directory, subdirectories, names in os.walk(workspace, onerror=_fail):
        # A link to a directory is a file here: what it points at may lie anywhere.
        links = [name for name in subdirectories if Path(directory, name).is_symlink()]
        subdirectories[:] = [name for name in subdirectories if name.lower() != ".git" and name not in links]
        for name in (*names, *links):
            file = Path(directory, name)
            if name.lower() != ".git" and (file.is_symlink() or file.is_file()):
                yield file.relative_to(workspace).as_posix(), file


def _fail(error: OSError) -> None:
    raise error


def _mode(file: Path) -> str:
    mode = file.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _LINK
    return _PROGRAM if mode & stat.S_IXUSR else _FILE


def _sha256(file: Path) -> str:
    if file.is_symlink():
        return hashlib.sha256(os.fsencode(file.readlink())).hexdigest()
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _content(file: Path) -> bytes:
    return os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
