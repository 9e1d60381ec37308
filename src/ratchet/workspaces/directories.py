"""Directories of workspaces: who owns them, in memory or on disk, mounts over them, their removal, and a hash of one.

Each process has a corner of the directory, marked as alive by a lock that the kernel drops when the process ends,
however it ends. So what lies in a corner whose lock is free was left by a dead process; no process number
has to be trusted.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import secrets
import stat
import time
import weakref
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Self

from ratchet.files import lock_of, remove_at
from ratchet.kernel import Misuse, exact_text
from ratchet.workspaces.errors import RepositoryUnwritable, WorkspaceError


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it; absent is fine. Raises `WorkspaceError` when something stays."""
    try:
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_at(path.name, parent)
    except OSError as error:
        raise WorkspaceError(
            f"{path} cannot be removed: {error.strerror}",
            hint="end the processes that use it and see who owns its files; the next prune tries again",
        ) from error
    finally:
        os.close(parent)


_MS_NOSUID = 2
_MS_NODEV = 4
_MNT_DETACH = 2
_OPTIONS = "index=off,metacopy=off,redirect_dir=off"
_libc = ctypes.CDLL(None, use_errno=True)


def mount_overlay(lower: Path, upper: Path, work: Path, at: Path, *, volatile: bool) -> None:
    """Show `lower` at `at`, writable, with what is written kept in `upper`. Raises `OSError`.

    A `volatile` mount is never written to disk when it ends: otherwise the end of each would wait for the whole disk.
    """
    for path in (lower, upper, work):
        if any(character in str(path) for character in ",:\\"):
            raise OSError(0, f"{path} has a comma, a colon or a backslash in it")
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{_OPTIONS}{',volatile' if volatile else ''}"
    _call(_libc.mount, b"overlay", os.fsencode(at), b"overlay", _MS_NOSUID | _MS_NODEV, options.encode())


def unmount(at: Path) -> None:
    """End a mount, at once for new users and as soon as they leave for the present ones. None there is fine."""
    with contextlib.suppress(OSError):
        _call(_libc.umount2, os.fsencode(at), _MNT_DETACH)


def unmount_below(directory: Path) -> None:
    """End every mount below a directory."""
    try:
        lines = exact_text(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    except FileNotFoundError:
        return
    points = [_plain(line.split(" ")[4]) for line in lines]
    for point in sorted(points, reverse=True):
        if Path(point).is_relative_to(directory):
            unmount(Path(point))


def _plain(escaped: str) -> str:
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        escaped = escaped.replace(octal, character)
    return escaped


def _call(function: object, *arguments: object) -> None:
    if function(*arguments) != 0:  # type: ignore[operator]
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_LOCK = "lock"
_MARK = "repository"
_TRIES = 10
# A process that has not named its corner by then died before it could.
_UNNAMED_SECONDS = 3600.0
_NAMES = "[0-9a-f]" * 8
_claims: weakref.WeakSet[Claim] = weakref.WeakSet()


class Claim:
    """This process's corner below `root`. `name` is part of the name of everything in it."""

    def __init__(self, root: Path, name: str, descriptor: int) -> None:
        self.name = name
        self.directory = root / name
        self._descriptor = descriptor
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        _claims.add(self)

    @classmethod
    def take(cls, root: Path, repository: Path) -> Self:
        try:
            _mark(root, repository)
            for _ in range(_TRIES):
                name = secrets.token_hex(4)
                # Locked before it has its name: what is found without its lock is taken for dead, and removed.
                unnamed = root / f".{name}"
                unnamed.mkdir()
                descriptor = lock_of(unnamed / _LOCK, make=True)
                if descriptor is not None:
                    unnamed.rename(root / name)
                    return cls(root, name, descriptor)
        except OSError as error:
            raise RepositoryUnwritable(
                f"workspaces cannot be made in {root}: {error.strerror}",
                hint="free some space, make the directory writable, or choose another directory for workspaces",
            ) from error
        raise RepositoryUnwritable(f"no corner for workspaces could be claimed in {root}")

    @property
    def is_mine(self) -> bool:
        """False in a process that was forked from the one that took it."""
        return self._pid == os.getpid()

    def new_name(self, label: str) -> str:
        return f"{label}-{self.name}-{next(self._numbers)}"

    def release(self) -> None:
        if self.is_mine:
            remove_tree(self.directory)
        self.forget()

    def forget(self) -> None:
        """Let go of the lock; the corner is then anybody's to remove."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def dead_claims(root: Path) -> Iterator[str]:
    """The names of corners whose process is gone, each held while the caller looks at it, then removed."""
    for unnamed in root.glob(f".{_NAMES}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - unnamed.stat().st_mtime > _UNNAMED_SECONDS:
                remove_tree(unnamed)
    for directory in sorted(root.glob(_NAMES)):
        descriptor = lock_of(directory / _LOCK, make=True)
        if descriptor is None:
            continue
        try:
            yield directory.name
            remove_tree(directory)
        finally:
            os.close(descriptor)


def has_claims(root: Path) -> bool:
    return any(root.glob(_NAMES))


def marked_repository(root: Path) -> Path | None:
    """The repository that a directory serves; `None` when it does not say."""
    try:
        return Path((root / _MARK).read_text().strip())
    except (OSError, ValueError):
        return None


def _mark(root: Path, repository: Path) -> None:
    """One directory serves one repository: prune could not tell whose leftovers it removes otherwise."""
    root.mkdir(parents=True, exist_ok=True)
    other = marked_repository(root)
    if other == repository:
        return
    if other is not None and other.is_dir():
        raise Misuse(
            f"{root} holds the workspaces of {other}", hint="give each repository a directory of its own"
        )
    temporary = root / f"{_MARK}-{secrets.token_hex(4)}"
    temporary.write_text(f"{repository}\n")
    temporary.replace(root / _MARK)


def _forget_in_child() -> None:
    # A forked child would keep the lock of its parent alive after the parent's death.
    for claim in list(_claims):
        claim.forget()


os.register_at_fork(after_in_child=_forget_in_child)


_LEAST_BYTES = 256 * 1024 * 1024


def memory_directory(repository: Path, shared: Path = Path("/dev/shm")) -> Path | None:
    """Where the workspaces of a repository can be in memory; `None` when this machine has no room for that."""
    try:
        room = os.statvfs(shared)
        if (
            room.f_flag & os.ST_NOEXEC
            or room.f_bavail * room.f_frsize < _LEAST_BYTES
            or not _is_memory(shared)
        ):
            return None
        own = shared / f"ratchet-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
    except OSError:
        return None
    # Everybody may write into the shared directory: this one could be somebody else's trap.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return None
    if found.st_mode & 0o077:
        own.chmod(0o700)
    _sweep(own)
    return own / hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]


def _sweep(own: Path) -> None:
    """Free what repositories that are gone have left, unless a process still works there. Nobody else will prune it."""
    for root in own.iterdir():
        repository = marked_repository(root)
        if repository is None or repository.exists():
            continue
        for claim in dead_claims(root):
            unmount_below(root / claim)
        if not has_claims(root):
            remove_tree(root)


def _is_memory(directory: Path) -> bool:
    mounts = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
    return [mount[2] for mount in mounts if mount[1] == str(directory)][-1:] == ["tmpfs"]


_CHUNK = 1024 * 1024


class Unpinnable(ValueError):
    """A directory holds something whose content a hash cannot stand for."""


def tree_hash(directory: Path, *, without: Set[str] = frozenset()) -> str:
    """A SHA-256 over the names, the contents and the executable bits of all files below `directory`.

    Files and directories that are called like one of `without` are passed over. Raises `Unpinnable` for a symbolic link
    and for anything else that is not a file or a directory.
    """
    whole = hashlib.sha256()
    for path, entry in _files(directory, without):
        runs = bool(entry.st_mode & stat.S_IXUSR)
        name = os.fsencode(path.relative_to(directory))
        whole.update(b"%d %d " % (len(name), runs) + name + _file_hash(path))
    return whole.hexdigest()


def _files(directory: Path, without: Set[str]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in sorted(directory.iterdir()):
        if path.name in without:
            continue
        entry = path.lstat()
        if stat.S_ISDIR(entry.st_mode):
            yield from _files(path, without)
        elif stat.S_ISREG(entry.st_mode):
            yield path, entry
        else:
            raise Unpinnable(f"{path} is neither a file nor a directory")


def _file_hash(path: Path) -> bytes:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.digest()
