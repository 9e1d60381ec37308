"""What the launcher is told of one command, as it travels between processes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .view import FileView

# Most nodes have ended before anyone looks.
NODE_LOOK_SECONDS = 0.1


def most_tasks(processes: int) -> int:
    """Threads count as well, and processes are watched one by one: this only stops a flood between two looks."""
    return 8 * processes + 64


class CommandSpec(NamedTuple):
    """`environment` is `None` where argv is public: then the launcher itself was given the `variables`, by name.

    With an `entry`, the dotted name of a function that the warm parent has loaded, that is called with argv in the
    place of a program.
    """

    argv: list[str]
    cwd: str
    environment: dict[str, str] | None
    variables: list[str]
    layers: list[str]
    view: FileView
    wall_seconds: float
    cpu_seconds: float | None
    memory_bytes: int | None
    processes: int
    file_bytes: int | None
    disk_bytes: int | None
    cpus: list[int]
    look_seconds: float
    idle_look_seconds: float = 0.0
    entry: str = ""

    @property
    def nested(self) -> bool:
        """Whether the command may put sandboxes of its own inside this one."""
        return self.view.system

    def to_json(self) -> str:
        return json.dumps(self._asdict() | {"view": self.view._asdict()})

    @staticmethod
    def from_json(text: str | bytes) -> CommandSpec:
        fields: dict[str, Any] = json.loads(text)
        return CommandSpec(**fields | {"view": FileView(**fields["view"])})
