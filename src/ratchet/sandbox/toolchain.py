"""Where programs of this machine are installed, and what of /etc no user may read: the view of an agent program."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.sandbox.inside.view import PROGRAMS

# What belongs to the programs of a `bin` directory that lies in a home, where everything else is the user's own.
_BESIDE = ("lib", "lib64", "libexec", "include")
_PROGRAM_DIRECTORIES = ("bin", "sbin", "shims")
_MOST_LINKS = 500
_SETTINGS = "/etc"


def tool_places(search: str) -> tuple[Path, ...]:
    """The directories of a PATH that are not the system's own, and what belongs to the programs in them."""
    found: dict[Path, None] = {}
    for name in search.split(os.pathsep):
        directory = Path(name)
        if directory.is_absolute() and ".." not in directory.parts and _is_tools(directory):
            found |= dict.fromkeys(_with_belongings(directory))
            found |= dict.fromkeys(_behind_links(directory))
    return tuple(found)


def program_places(program: Path) -> tuple[Path, ...]:
    """Where a program lies, and where it leads to if it is a link; of one in a virtual environment, all of that."""
    found: dict[Path, None] = {}
    for file in (program, program.resolve()):
        if _is_tools(file.parent):
            found |= dict.fromkeys((file.parent, *_with_belongings(file.parent)))
        elif not _is_system(file):
            found[file] = None
    return tuple(found)


def named_places(argv: Sequence[str]) -> tuple[Path, ...]:
    """What a command line names by absolute paths: directories, and files with what lies around them."""
    found: dict[Path, None] = {}
    for path in map(Path, argv):
        if path.is_absolute() and ".." not in path.parts and path != Path("/") and path.exists():
            found |= dict.fromkeys((path,) if path.is_dir() else program_places(path))
    return tuple(found)


def closed_settings() -> tuple[tuple[str, str], ...]:
    """What lies in /etc and is closed to other users, such as hashes of passwords and private keys; the first part is
    /etc itself, the second the path below it."""
    return tuple((_SETTINGS, os.path.relpath(path, _SETTINGS)) for path in _closed(_SETTINGS))


def _closed(directory: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            if mode & 0o005 == 0o005:
                yield from _closed(entry.path)
            else:
                yield entry.path
        elif not mode & 0o004:
            yield entry.path


def _is_tools(directory: Path) -> bool:
    """Whether it may be shown whole: a directory that is neither the system's, nor a home, nor around one."""
    if not directory.is_dir() or _is_system(directory):
        return False
    real = directory.resolve()
    return len(real.parts) > 2 and not any(home.is_relative_to(real) for home in _homes())


def _is_system(path: Path) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(Path(top).resolve()) for top in (*PROGRAMS, _SETTINGS))


def _homes() -> list[Path]:
    return [Path.home().resolve(), Path("/root"), *(path for path in _children(Path("/home")))]


def _children(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _with_belongings(directory: Path) -> Iterator[Path]:
    yield directory
    prefix = directory.parent
    if (prefix / "pyvenv.cfg").exists():
        yield prefix
        base = (directory / "python").resolve().parent
        if base != directory and _is_tools(base):
            yield from _with_belongings(base)
    elif directory.name in _PROGRAM_DIRECTORIES:
        if any(prefix.resolve().is_relative_to(home) for home in _homes()):
            yield from (path for name in _BESIDE if (path := prefix / name).is_dir())
        elif _is_tools(prefix):
            yield prefix


def _behind_links(directory: Path) -> Iterator[Path]:
    """What the links in a directory lead to: programs that were installed elsewhere."""
    for entry in _children(directory)[:_MOST_LINKS]:
        if not entry.is_symlink():
            continue
        target = entry.resolve()
        if not target.exists() or _is_system(target):
            continue
        if target.parent.name in _PROGRAM_DIRECTORIES and _is_tools(target.parent):
            yield from _with_belongings(target.parent)
        elif target.is_file():
            yield target
