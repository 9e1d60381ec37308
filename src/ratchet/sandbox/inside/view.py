"""What a sandboxed process sees of the file system.

All that is to be seen is cloned first; then the new tree is put together from it and becomes the root.
"""

# pathlib is slow to import.
# ruff: noqa: PTH110, PTH114, PTH115, PTH118, PTH119, PTH120
from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from . import tree
from .linux import (
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    map_tree,
    mount,
    open_below,
)

# Covered by the new root while it is put together; any directory that is always there will do.
_BUILD = "/tmp"
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/ssl",
)
_ETC, _RESOLVER = "/etc", "/etc/resolv.conf"
# Where some systems keep what their /etc links to, and what is installed.
_DATA = ("/var/lib/ca-certificates", "/var/lib/dpkg")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
# Root owns the kernel's settings and could write them even without its capabilities.
_KERNEL_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
_TO_READ = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
SCRATCH = ("/tmp", "/dev/shm")
_BYTES_FOR_A_NAME, _LEAST_NAMES = 4096, 2048


class FileView(NamedTuple):
    """What is to be seen. `system`: all of /etc, not only what every program needs.

    In `read_only` and `hidden` the second part of a path must not lead over a link. `places` are what is to be seen by
    another path than its own: that path, then its own, and are seen in what is hidden, too; `links` are further names,
    for which there are symbolic links. `devices` may be used beside those that every program needs. `scratch_bytes` is
    for /tmp and `shared_bytes` for /dev/shm, 0 for as good as nothing and `None` for no bound of our own.
    """

    system: bool = False
    network: bool = False
    processes: bool = True
    python: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    read_only: tuple[tuple[str, str], ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()
    scratch_bytes: int | None = 0
    shared_bytes: int | None = 0

    def visible(self) -> list[str]:
        """All that may be read, for where there is no mount namespace to hide the rest."""
        return ["/"] if self.system else [*PROGRAMS, *_SETTINGS, "/dev", *self.python, *self.readable]


def pieces_of(view: FileView, users: int | None = None) -> list[tree.Piece]:
    """What is to be seen of the machine, cloned. With `users`, a user namespace, what is not the system's own belongs
    to whom that says; raises `OSError` where a file system cannot be mounted so."""
    pieces = [tree.cloned(path, attributes) for path, attributes in _wanted(view)]
    pieces += [_placed(target, path, _is_below(path, view.writable)) for target, path in sorted(view.places)]
    if users is not None:
        own = {*PROGRAMS, *_SETTINGS, *_DATA, _ETC, os.path.realpath(_RESOLVER)} - {
            *view.readable,
            *view.writable,
        }
        for piece in pieces:
            if piece.target not in own:
                map_tree(piece.tree, users)
    return pieces


def build(view: FileView, pieces: list[tree.Piece] | None = None) -> None:
    """Make `view` the root of this mount namespace, from `pieces` if they were cloned before. Its /proc needs a pid
    namespace of its own, too."""
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    # A device can be written through a mount that is read-only; only its mode and times cannot be changed then.
    shown = (*(f"/dev/{name}" for name in _DEVICES), *view.devices)
    devices = [tree.cloned(path, ATTR_RDONLY | ATTR_NOSUID) for path in shown]
    pieces = pieces_of(view) if pieces is None else pieces
    root = _bare_root(view)
    tree.cover(root, "/tmp", memory_options(view.scratch_bytes))
    _furnish_devices(root, devices, memory_options(view.shared_bytes))
    covered = tuple(os.path.join(top, rest) for top, rest in view.hidden)
    for piece in pieces:
        if not _is_below(piece.target, covered):
            tree.attach(root, piece)
    for path, target in view.links:
        _link(root, path, target)
    for top, rest in view.read_only:
        tree.make_read_only(root, os.path.join(top, rest))
    for path in covered:
        tree.hide(root, path, [piece for piece in pieces if _is_below(piece.target, (path,))])
    if view.processes:
        tree.mount_at(root, "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    tree.seal(root, "/")
    tree.become_root(root)


def memory_options(scratch_bytes: int | None) -> str:
    """How a directory in memory is mounted that all may write. Each name in it takes memory, too, which its size
    does not count."""
    if scratch_bytes is None:
        return "mode=1777"
    names = max(scratch_bytes // _BYTES_FOR_A_NAME, _LEAST_NAMES)
    return f"mode=1777,size={scratch_bytes or 4096},nr_inodes={names}"


def guard_kernel_settings() -> None:
    """Make the kernel's settings in the new /proc read-only."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for name in _KERNEL_SETTINGS:
        with contextlib.suppress(FileNotFoundError):
            tree.make_read_only(root, f"/proc/{name}")
    os.close(root)


def _wanted(view: FileView) -> list[tuple[str, int]]:
    """The paths to be seen, those higher up first, so that each lies on top of what contains it."""
    own = (*view.python, *PROGRAMS, *((_ETC, *_DATA) if view.system else _SETTINGS))
    wanted = {path: ATTR_RDONLY for path in own if os.path.exists(path) and not os.path.islink(path)}
    if view.network and os.path.exists(_RESOLVER):
        wanted[os.path.realpath(_RESOLVER)] = ATTR_RDONLY
    wanted |= dict.fromkeys(view.readable, ATTR_RDONLY) | dict.fromkeys(view.writable, 0)
    return sorted(
        ((path, attributes | ATTR_NOSUID | ATTR_NODEV) for path, attributes in wanted.items()),
        key=lambda pair: len(pair[0]),
    )


def _placed(target: str, path: str, writable: bool) -> tree.Piece:
    attributes = ATTR_NOSUID | ATTR_NODEV if writable else _TO_READ
    return tree.cloned(path, attributes)._replace(target=target)


def _link(root: int, path: str, target: str) -> None:
    """What is there already, or lies in something of the machine's own, is left as it is there."""
    with contextlib.suppress(OSError):
        parent = tree.made(root, os.path.dirname(path))
        os.symlink(target, os.path.basename(path), dir_fd=parent)
        os.close(parent)


def _is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _bare_root(view: FileView) -> int:
    """An empty tree with those links of the machine's own that programs need, and an /etc that names only this user,
    unless the machine's own is shown."""
    mount("tmpfs", _BUILD, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    root = os.open(_BUILD, os.O_PATH | os.O_CLOEXEC)
    os.mkdir("etc", dir_fd=root)
    if view.system:
        tree.cover(root, "/run", "mode=0755,size=1m,nr_inodes=1k")
    settings = () if view.system else (*_SETTINGS, *((_RESOLVER,) if view.network else ()))
    for path in (*PROGRAMS, *settings):
        if os.path.islink(path):
            os.symlink(os.readlink(path), path.lstrip("/"), dir_fd=root)
    if view.system:
        return root
    uid, gid = os.getuid(), os.getgid()
    _write(root, "etc/passwd", f"user:x:{uid}:{gid}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
    _write(root, "etc/group", f"user:x:{gid}:\nnogroup:x:65534:\n")
    _write(root, "etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n")
    return root


def _furnish_devices(root: int, devices: list[tree.Piece], shared_memory: str) -> None:
    # A device can be written whatever its mount says, so the machine's own /dev is never shown.
    tree.cover(root, "/dev", "mode=0755,size=64k")
    for piece in devices:
        tree.attach(root, piece)
    place = open_below(root, "/dev")
    for name, target in _LINKS.items():
        os.symlink(target, name, dir_fd=place)
    os.close(place)
    tree.cover(root, "/dev/shm", shared_memory)
    terminals = "newinstance,ptmxmode=0666,mode=620"
    tree.mount_at(root, "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, terminals)
    tree.seal(root, "/dev")


def _write(root: int, path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=root)
    os.write(file, text.encode())
    os.close(file)
