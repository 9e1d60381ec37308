"""A node: a Python function that is given JSON and returns JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Misuse

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Node:
    """`source` is the text of a module, or the path of a file that has it; `function` is called with the input.

    The input is the JSON on stdin: an object becomes keyword arguments unless `spread` is false, anything else the one
    argument. `modules` are imported in the warm parent, before any node starts. `scratch` gives it a private, writable
    directory, in which it starts. `file` is what tracebacks call a source that is a text; if it is an absolute path,
    modules that lie beside it can be imported, as far as the policy shows them.
    """

    source: str | Path
    function: str = "run"
    modules: tuple[str, ...] = ()
    scratch: bool = False
    spread: bool = False
    file: str = ""

    def __post_init__(self) -> None:
        for name in (self.function, *self.modules):
            if not _NAME.fullmatch(name):
                raise Misuse(f"{name!r} is not the name of a function or module")

    @property
    def name(self) -> str:
        """What tracebacks call it."""
        return str(self.source) if isinstance(self.source, Path) else self.file or "<node>"

    def code(self) -> bytes:
        """The source in UTF-8. Raises `Misuse` if it cannot be had."""
        try:
            if isinstance(self.source, str):
                return self.source.encode()
            if self.source.is_symlink():
                # Whoever wrote it chose where it points, and its text would show up in tracebacks.
                raise Misuse(f"the node {self.source} is a symbolic link")
            return self.source.read_bytes()
        except (OSError, UnicodeEncodeError) as error:
            raise Misuse(f"the node {self.name} cannot be read: {error}") from error
