"""Putting a tree of mounts together.

Targets are always looked up below the new root, as if it were the root already, so that no symbolic link leads a mount
astray.
"""

# pathlib is slow to import.
# ruff: noqa: PTH119, PTH120
from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from .linux import (
    ATTR_NODEV,
    ATTR_RDONLY,
    MNT_DETACH,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    attach_tree,
    called,
    clone_tree,
    libc,
    mount,
    open_below,
    pivot_root,
    restrict_tree,
)

_BYTES_FOR_A_PLACE = 4096


class Piece(NamedTuple):
    """A copy of what is mounted at a path, attached nowhere yet."""

    target: str
    tree: int
    directory: bool


def cloned(path: str, attributes: int) -> Piece:
    tree = clone_tree(path)
    if attributes:
        restrict_tree(tree, attributes)
    return Piece(path, tree, stat.S_ISDIR(os.fstat(tree).st_mode))


def attach(root: int, piece: Piece) -> None:
    target = made(root, piece.target, piece.directory)
    attach_tree(piece.tree, target)
    os.close(target)
    os.close(piece.tree)


def made(root: int, path: str, directory: bool = True) -> int:
    """A descriptor of the mount point `path`, which is made if it is missing, where something can be made."""
    try:
        return open_below(root, path)
    except FileNotFoundError:
        parent = made(root, os.path.dirname(path))
        name = os.path.basename(path)
        if directory:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=parent))
        os.close(parent)
        return open_below(root, path)


def mount_at(root: int, path: str, kind: str, flags: int, options: str = "") -> None:
    target = made(root, path)
    mount(kind, f"/proc/self/fd/{target}", kind, flags, options)
    os.close(target)


def cover(root: int, path: str, options: str) -> None:
    """Put an empty directory that is kept in memory over `path`."""
    mount_at(root, path, "tmpfs", MS_NOSUID | MS_NODEV, options)


def make_read_only(root: int, path: str) -> None:
    """Let `path` be read-only although what is around it is not. Raises `OSError` if it leads over a link."""
    target = open_below(root, path, symlinks=False)
    tree = clone_tree(f"/proc/self/fd/{target}")
    restrict_tree(tree, ATTR_RDONLY)
    attach_tree(tree, target)
    os.close(tree)
    os.close(target)


def hide(root: int, path: str, shown: Sequence[Piece] = ()) -> None:
    """Let `path`, if it is there, appear empty but for the pieces that are `shown` below. Raises `OSError` if it leads
    over a link."""
    try:
        target = open_below(root, path, symlinks=False)
    except (FileNotFoundError, PermissionError):
        return  # it is not there, or this user cannot come near it
    if stat.S_ISDIR(os.fstat(target).st_mode):
        flags = MS_NOSUID | MS_NODEV | (0 if shown else MS_RDONLY)
        options = f"mode={'0755' if shown else '0555'},size={_BYTES_FOR_A_PLACE * (len(shown) + 1)}"
        mount("tmpfs", f"/proc/self/fd/{target}", "tmpfs", flags, options)
        for piece in shown:
            attach(root, piece)
        if shown:
            seal(root, path)
    else:
        # A device on a mount that knows no devices: it is there and cannot be opened.
        tree = clone_tree("/dev/null")
        restrict_tree(tree, ATTR_RDONLY | ATTR_NODEV)
        attach_tree(tree, target)
        os.close(tree)
    os.close(target)


def seal(root: int, path: str) -> None:
    """Let nothing be added to a directory that was made here."""
    place = open_below(root, path)
    restrict_tree(place, ATTR_RDONLY, below=False)
    os.close(place)


def become_root(root: int) -> None:
    """Make the tree the root, and let go of the old one."""
    os.fchdir(root)
    pivot_root(".", ".")
    # Both are now stacked on one place, and the upper one is the old.
    called(libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")
    os.close(root)
