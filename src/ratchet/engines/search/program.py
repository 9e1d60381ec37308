"""The files of a workspace: reading those that declare something, and changing single literals of them."""

from __future__ import annotations

import ast
import io
import os
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ratchet.engines.search.constants import Constant, find_constants
from ratchet.engines.search.declaration import BadDeclaration
from ratchet.kernel import Misuse

_LARGEST = 4_000_000
_MARK = b"search:"


@dataclass(frozen=True, slots=True)
class Program:
    """The files that hold constants, by path, and the constants in them."""

    root: Path
    texts: Mapping[str, _Text]
    constants: tuple[Constant, ...]

    @classmethod
    def read(
        cls, root: Path, patterns: Sequence[str], *, undeclared: bool, go_on: Callable[[], None]
    ) -> Program:
        """Raises `BadDeclaration`, and `Misuse` where nothing is declared. `go_on` is asked before each file."""
        texts: dict[str, _Text] = {}
        constants: list[Constant] = []
        for path in _python_files(root, patterns):
            go_on()
            content = _content(root / path, path)
            if not undeclared and _MARK not in content:
                continue
            text = _Text.decode(path, content)
            found = find_constants(path, text.text, undeclared=undeclared)
            if found:
                texts[path] = text
                constants += found
        if not constants:
            raise Misuse(
                f"no constant in {', '.join(patterns)} is declared, so there is nothing to search",
                hint="write `RATE = 0.1  # search: 0.001..1 log` in the program, or use the engine `search:all`",
            )
        return cls(root, texts, tuple(constants))

    def differs(self, literals: Sequence[str]) -> bool:
        """Whether any of these is worth something else than the constant that stands there."""
        return any(_changes(each, new) for each, new in zip(self.constants, literals, strict=True))

    def rewrite(self, literals: Sequence[str]) -> list[str]:
        """Put these in the place of the constants, one for each, and leave every other byte. The files that changed."""
        edits: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for each, new in zip(self.constants, literals, strict=True):
            if _changes(each, new):
                edits[each.path].append((each.start, each.end, new))
        for path, changes in edits.items():
            text = self.texts[path]
            _write(self.root / path, text.encode(_edited(text.text, changes)))
        return sorted(edits)


@dataclass(frozen=True, slots=True)
class _Text:
    """A file and how its bytes are to be read."""

    content: bytes
    text: str
    encoding: str

    @classmethod
    def decode(cls, path: str, content: bytes) -> _Text:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            text = content.decode(encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise BadDeclaration(path, 1, f"the file cannot be read as text: {error}") from None
        decoded = cls(content, text, encoding)
        if decoded.encode(text) != content:
            raise BadDeclaration(path, 1, f"the file does not stay the same when it is read as {encoding}")
        return decoded

    def encode(self, text: str) -> bytes:
        return text.encode(self.encoding)


def _python_files(root: Path, patterns: Iterable[str]) -> Iterator[str]:
    """Paths that fit a pattern, in order. Nothing hidden, and nothing behind a link: that may lead elsewhere."""
    wanted = list(patterns)
    for directory, below, names in os.walk(root, followlinks=False):
        below[:] = sorted(name for name in below if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            path = Path(directory, name)
            relative = path.relative_to(root).as_posix()
            if any(fnmatchcase(relative, pattern) for pattern in wanted) and not path.is_symlink():
                yield relative


def _content(path: Path, shown: str) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise BadDeclaration(shown, 1, f"the file is larger than {_LARGEST:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadDeclaration(shown, 1, f"the file cannot be read: {error.strerror}") from error


def _changes(constant: Constant, literal: str) -> bool:
    value = ast.literal_eval(literal)
    return (type(value), value) != (type(constant.present), constant.present)


def _edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _write(path: Path, content: bytes) -> None:
    # In place, so that its mode stays, and never through a link.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
        file.write(content)
