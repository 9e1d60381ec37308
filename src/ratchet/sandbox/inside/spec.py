"""What the launcher is told of one command, as it travels between processes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .view import FileView


class CommandSpec(NamedTuple):
    """`environment` is `None` where argv is public: then the launcher itself was given the `variables`, by name."""

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

    @property
    def nested(self) -> bool:
        """Whether the command may put sandboxes of its own inside this one."""
        return self.view.everything

    def to_json(self) -> str:
        return json.dumps(self._asdict() | {"view": self.view._asdict()})

    @staticmethod
    def from_json(text: str | bytes) -> CommandSpec:
        fields: dict[str, Any] = json.loads(text)
        return CommandSpec(**fields | {"view": FileView(**fields["view"])})
