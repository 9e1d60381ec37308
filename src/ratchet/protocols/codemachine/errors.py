"""What is wrong with a workspace, and where."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.kernel import Misuse


class WorkspaceInvalid(Misuse):
    """A CodeMachine workspace that cannot be read as it is. `file` and `line` say where, as far as that is known."""

    http_status = 400

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        where = f"{file}:{line}: " if line is not None else f"{file}: " if file is not None else ""
        super().__init__(f"{where}{message}", hint=hint)
        self.file = file
        self.line = line


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file of the workspace."""

    file: str
    line: int | None = None

    def error(self, message: str, *, hint: str | None = None) -> WorkspaceInvalid:
        return WorkspaceInvalid(message, file=self.file, line=self.line, hint=hint)
