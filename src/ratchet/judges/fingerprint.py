"""Hashes of what decides: of plain values, and of a directory with everything in it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

_CHUNK = 1024 * 1024


class Unpinnable(ValueError):
    """A directory holds something whose content a hash cannot stand for."""


@runtime_checkable
class Hashed(Protocol):
    """A value that is known by its content, wherever it lies."""

    @property
    def sha256(self) -> str: ...


def fingerprint(kind: str, **parts: object) -> str:
    """A SHA-256 over `parts` that is the same in every process."""
    text = json.dumps([kind, _plain(parts)], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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


def _plain(value: Any) -> Any:
    """`value` as JSON has it. What it cannot have is refused by `json` later on."""
    if isinstance(value, Hashed):
        return value.sha256
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Set):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
