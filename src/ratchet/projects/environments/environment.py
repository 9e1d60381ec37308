"""An environment that has been made, and how it looks from a checkout of the project.

While it was made, the project was checked out at `tree`. That path is in what was installed: in the import paths of an
editable package, in programs, in links. So a check sees its candidate at that very path. An author works in a workspace
with a path of its own, sees that at `tree` as well, and imports from the workspace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

_FILE = "environment.json"
TREE, LEFT, VENV, TOOLS, NODE_TOOLS, STORE = "tree", "left", "venv", "tools", "node-tools", "store"
CACHE = ".cache"
_SYSTEM = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Environment:
    """What a set-up has made. `commands` were run, and `notes` say what did not work and was done without.

    Left in the checkout were `directories` of packages, which are only read; `outputs`, directories of what was built,
    which those who build again write; and `files`. `ignored` are those of the outputs and files that git does not see.
    `caches` are empty directories among the packages that tools of Node write to. `imports` are directories of the
    project that Python imports from.
    """

    directory: Path
    variables: Mapping[str, str]
    programs: Sequence[str] = ()
    readable: Sequence[str] = ()
    directories: Sequence[str] = ()
    outputs: Sequence[str] = ()
    files: Sequence[str] = ()
    ignored: Sequence[str] = ()
    caches: Sequence[str] = ()
    imports: Sequence[str] = ()
    commands: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    seconds: float = 0.0
    python: str | None = field(default=None)

    @property
    def tree(self) -> Path:
        return self.directory / TREE

    @property
    def shown(self) -> tuple[Path, ...]:
        """What a sandbox must be able to read."""
        return (self.directory, *(path for path in map(Path, self.readable) if path.exists()))

    @property
    def mounts(self) -> dict[str, Path]:
        """The directories of packages that a checkout lacks, and where they are."""
        return {path: self.directory / LEFT / path for path in self.directories}

    @property
    def copies(self) -> dict[str, Path]:
        """What else a checkout lacks, and where it is."""
        return {path: self.directory / LEFT / path for path in (*self.outputs, *self.files)}

    def variables_at(self, place: Path, *, path: str = _SYSTEM) -> dict[str, str]:
        """The environment variables for work in a checkout at `place`; `path` is what else is searched for programs."""
        own = [str(place / "node_modules" / ".bin")] if "node_modules" in self.directories else []
        variables = {**self.variables, "PATH": ":".join([*own, *self.programs, path])}
        if place != self.tree and self.imports:
            variables["PYTHONPATH"] = ":".join(str(place / each) for each in self.imports)
        return variables

    def places_at(self, workspace: Path) -> dict[Path, Path]:
        """What an author's sandbox shows by another path: the workspace, and the directories that it lacks."""
        found = {self.tree: workspace}
        for path in (*self.directories, *(each for each in self.outputs if each not in self.ignored)):
            target = workspace / path
            if not target.exists() or (target.is_dir() and not target.is_symlink() and _is_bare(target)):
                found[target] = self.directory / LEFT / path
        # What tools keep there is the workspace's own, where git does not see it.
        own = [
            workspace / path for path in self.caches if path in self.ignored and stays_inside(workspace, path)
        ]
        return found | {path: path for path in own if path.parent in found}

    def save(self) -> None:
        """Write it into its directory."""
        content = {key: value for key, value in asdict(self).items() if key != "directory"}
        (self.directory / _FILE).write_text(json.dumps(content, indent=1))

    @classmethod
    def load(cls, directory: Path) -> Environment:
        return cls(directory, **json.loads((directory / _FILE).read_text()))


def stays_inside(directory: Path, path: str) -> bool:
    """Whether no part of a path below `directory` is a link, which could lead out of it."""
    return (directory / path).resolve() == directory.resolve() / path


def _is_bare(directory: Path) -> bool:
    return all(each.name == CACHE for each in directory.iterdir())
