"""A function that is run instead of a command: cheaper by far, since no interpreter has to start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.sandbox import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`name` in `file` is called in a sandboxed node: it is given one JSON value and returns one.

    `modules` are imported before it starts. A node can start no other process and writes nowhere.
    """

    file: str
    name: str
    modules: tuple[str, ...] = ()

    def node(self, source: str, directory: Path | None) -> Node:
        """The node that runs `source`. With a `directory` that it is shown, it can import what lies beside its file."""
        called = self.file if directory is None else str(directory / self.file)
        return Node(source, self.name, self.modules, file=called)


def check_one_way(who: str, argv: tuple[str, ...], function: Function | None) -> None:
    """Raise `Misuse` unless there is one way to run it."""
    if not argv and function is None:
        raise Misuse(f"the {who} has no command to run")
    if argv and function is not None:
        raise Misuse(f"the {who} has a command and a function", hint="leave one of them out")
