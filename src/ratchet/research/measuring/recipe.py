"""Which files of a candidate are the recipe's."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ratchet.workspaces import Entry


@dataclass(frozen=True, slots=True)
class Recipe:
    """Files and directories that may be edited, as the task names them."""

    paths: tuple[str, ...]

    def covers(self, path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in self.paths)

    def within(self, files: Mapping[str, Entry]) -> dict[str, Entry]:
        return {path: entry for path, entry in files.items() if self.covers(path)}

    def file(self, name: str, roots: Sequence[str] = ()) -> str | None:
        """The path in the recipe of what a traceback calls `name`; `None` for another file.

        `roots` are the directories in which the recipe was seen.
        """
        for root in roots:
            name = name.removeprefix(f"{root}/")
        path = posixpath.normpath(name)
        return path if self.covers(path) else None
