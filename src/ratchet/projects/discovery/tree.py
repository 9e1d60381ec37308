"""Reading a working tree that anybody may have filled: never out of it, never much, and broken files only noted."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import itertools
import json
import os
import re
import stat
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ratchet.kernel import decoded, first_line

_SEAL = "# Written by Ratchet. Change it as you like: it is never overwritten. seal="
_SEALED = re.compile(re.escape(_SEAL) + r"([0-9a-f]{16})\n")
NOTHING = "# Nothing to run was found."


def seal(text: str) -> str:
    """`text` with a line that says who wrote it, behind the first one if that names an interpreter."""
    first, newline, rest = text.partition("\n")
    head, body = (first + newline, rest) if first.startswith("#!") else ("", text)
    return f"{head}{_SEAL}{_digest(head + body)}\n{body}"


def is_untouched(text: str) -> bool:
    """Whether it is as Ratchet wrote it."""
    found = _SEALED.search(text)
    return found is not None and _digest(text.replace(found[0], "", 1)) == found[1]


def runs_nothing(text: str) -> bool:
    """Whether it is a script of Ratchet's that had nothing to run."""
    return is_untouched(text) and NOTHING in text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


Value = TypeVar("Value")

_LARGEST_FILE = 256 * 1024
_LARGEST_DOCUMENT = 128 * 1024
_MOST_BYTES = 8 * 1024 * 1024
_MOST_ENTRIES = 2_000
_MOST_WALKED = 5_000
_MOST_NOTES = 20
# The reader of TOML takes quadratic time for a key with many parts, and a key stands on one line.
_MOST_DOTS = 200
# Putting a document together takes a call for each level.
_DEEPEST = 100
_YAML = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_IN_PLACE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOREIGN = frozenset({"node_modules", "vendor", "third_party", "target", "build", "dist", "venv", "env"})


@dataclass(slots=True)
class _Allowance:
    """What may still be read of a whole tree, and what was found wrong with it."""

    bytes_left: int = _MOST_BYTES
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A directory below `root`. A path that is a link, or lies behind one, counts as missing."""

    root: Path
    below: str = ""
    _allowance: _Allowance = field(default_factory=_Allowance, repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._allowance.notes)

    def note(self, text: str) -> None:
        """Remember something for a person, once."""
        if text not in self._allowance.notes and len(self._allowance.notes) < _MOST_NOTES:
            self._allowance.notes.append(text)

    def inside(self, name: str) -> SourceTree:
        """The directory `name`, with the same allowance."""
        return SourceTree(self.root, self.path(name), self._allowance)

    def path(self, name: str) -> str:
        """Where `name` is, seen from the top."""
        return f"{self.below}/{name}" if self.below else name

    def has(self, name: str) -> bool:
        """Whether there is a regular file."""
        return self._look(name, stat.S_ISREG)

    def has_directory(self, name: str) -> bool:
        return self._look(name, stat.S_ISDIR)

    def text(self, name: str) -> str | None:
        """What a file says; nothing if there is none, or one that is too large."""
        with contextlib.suppress(OSError), self._opened(name) as descriptor:
            size = os.fstat(descriptor).st_size
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            if size > _LARGEST_FILE or size > self._allowance.bytes_left:
                self.note(f"{self.path(name)!r} is too large to be read ({size:,} bytes)")
                return None
            content = _all_of(descriptor, _LARGEST_FILE)
            self._allowance.bytes_left -= len(content)
            return decoded(content)
        return None

    def start(self, name: str, most: int = 4096) -> str:
        """How a file begins, however large it is."""
        with contextlib.suppress(OSError), self._opened(name) as descriptor:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return decoded(_all_of(descriptor, most))
        return ""

    def toml(self, name: str) -> dict[str, Any]:
        return self._parsed(name, _toml) or {}

    def json(self, name: str) -> dict[str, Any]:
        found = self._parsed(name, json.loads)
        return found if isinstance(found, dict) else {}

    def yaml(self, name: str) -> dict[str, Any]:
        """A YAML document in which every value is a text, as it stands there; tags and merges mean nothing."""
        found = self._parsed(name, _yaml)
        return found if isinstance(found, dict) else {}

    def ini(self, name: str) -> dict[str, dict[str, str]]:
        return self._parsed(name, _ini) or {}

    def names(self, directory: str = ".") -> list[str]:
        """What lies in a directory, in order; of a very large one only a part."""
        return [name for name, _ in self._entries(directory)]

    def directories(self, directory: str = ".") -> list[str]:
        """The directories in a directory that may hold code of this repository."""
        return [name for name, is_dir in self._entries(directory) if is_dir and _is_own(name)]

    def walk(self, depth: int) -> Iterator[str]:
        """The files below, nearest first, without those that others wrote; of a very large tree only a part."""
        waiting, seen = deque([("", depth)]), 0
        while waiting and seen < _MOST_WALKED:
            folder, left = waiting.popleft()
            entries = self._entries(folder or ".")
            seen += len(entries) + 1
            for name, is_dir in entries:
                path = f"{folder}/{name}" if folder else name
                if not is_dir:
                    yield path
                elif left and _is_own(name):
                    waiting.append((path, left - 1))

    def _look(self, name: str, wanted: Callable[[int], bool]) -> bool:
        try:
            with self._folder(name) as (folder, last):
                return wanted(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode)
        except (OSError, ValueError):
            return False

    def _entries(self, directory: str) -> list[tuple[str, bool]]:
        with (
            contextlib.suppress(OSError),
            self._opened(directory, os.O_DIRECTORY) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            return sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in itertools.islice(entries, _MOST_ENTRIES)
                if entry.name.isprintable() and not entry.is_symlink()
            )
        return []

    def _parsed(self, name: str, parse: Callable[[str], Value]) -> Value | None:
        text = self.text(name)
        if text is None:
            return None
        if len(text) > _LARGEST_DOCUMENT:
            self.note(f"{self.path(name)!r} is too large to be read ({len(text):,} characters)")
            return None
        try:
            return parse(text)
        except (ValueError, RecursionError, yaml.YAMLError, configparser.Error) as error:
            self.note(f"{self.path(name)!r} cannot be read: {_first_line(error)}")
            return None

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int = os.O_NONBLOCK) -> Iterator[int]:
        with self._folder(name) as (folder, last):
            descriptor = os.open(last, _IN_PLACE | flags, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[tuple[int, str]]:
        """The directory that holds `name`, reached without following a link, and the last part of the name."""
        parts = [part for part in self.path(name).split("/") if part != "."] or ["."]
        held = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                deeper = os.open(part, _IN_PLACE | os.O_DIRECTORY, dir_fd=held)
                os.close(held)
                held = deeper
            yield held, parts[-1]
        finally:
            os.close(held)


def table(value: Any, *path: str) -> dict[str, Any]:
    """The table at a path of a document; an empty one if something else or nothing is there."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _all_of(descriptor: int, most: int) -> bytes:
    content = b""
    while len(content) < most and (piece := os.read(descriptor, most - len(content))):
        content += piece
    return content


def _toml(text: str) -> dict[str, Any]:
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    depth = 0
    for event in yaml.parse(text, Loader=_YAML):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
    return yaml.load(text, Loader=_YAML)


def _ini(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.read_string(text)
    return {name: {key: value or "" for key, value in parser[name].items()} for name in parser.sections()}


def _first_line(error: Exception) -> str:
    return first_line(str(error))[:200] or type(error).__name__


def _is_own(name: str) -> bool:
    return not name.startswith(".") and name not in _FOREIGN
