"""The files of a workspace, and nothing beside them.

Every file has a name of its own below `/workspace`, the project; see `paths`. Links may lead to other places of the
workspace, never out of it.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
class SourcePlace:
    """A line of a file of the workspace."""

    file: str
    line: int | None = None

    def error(self, message: str, *, hint: str | None = None) -> WorkspaceInvalid:
        return WorkspaceInvalid(message, file=self.file, line=self.line, hint=hint)


FOLDER = ".codemachine"
_MOST_NAMES = 1000
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class Files:
    """`base` is where the configuration lies: the folder `.codemachine` of a project, or the top of a package."""

    def __init__(self, given: Path) -> None:
        """Raises `WorkspaceInvalid` when there is no workspace."""
        self.root = _directory(given)
        own = self.root.name == FOLDER
        self._mount = f"{HOME}/{FOLDER}" if own else HOME
        configured = (self.root / FOLDER / "config").is_dir()
        self.base = f"{HOME}/{FOLDER}" if own or configured else HOME
        if not self.exists(f"{self.base}/config/main.agents.js"):
            raise WorkspaceInvalid(
                f"{given} has no {FOLDER}/config/main.agents.js and no config/main.agents.js",
                hint="give the directory that has the folder .codemachine, or that folder itself",
            )

    def find(self, path: str) -> str | None:
        """The file or directory that a path means: one below the base, else one of the project."""
        return next((each for each in self.candidates(path) if self.exists(each)), None)

    def candidates(self, path: str) -> list[str]:
        """The names that a path may mean, the likeliest first."""
        places = dict.fromkeys(posixpath.normpath(posixpath.join(top, path)) for top in (self.base, HOME))
        return list(places)

    def exists(self, name: str) -> bool:
        return self._real(name) is not None

    def is_directory(self, name: str) -> bool:
        real = self._real(name)
        return real is not None and real.is_dir()

    def read(self, name: str, *, limit: int, place: SourcePlace | None = None) -> bytes:
        """The content of a file. Raises `WorkspaceInvalid`, at `place` if that is where the file is named."""
        at = place or SourcePlace(self.shown(name))
        real = self._real(name)
        if real is None:
            raise at.error(f"{self.shown(name)} does not exist in the workspace")
        try:
            content = _content(self.root, real.relative_to(self.root).parts, limit)
        except OSError as error:
            raise at.error(f"{self.shown(name)} cannot be read: {error.strerror}") from None
        if len(content) > limit:
            raise at.error(f"{self.shown(name)} is longer than {limit} bytes")
        return content

    def text(self, name: str, *, limit: int, place: SourcePlace | None = None) -> str:
        """The content of a file that must be text."""
        try:
            return self.read(name, limit=limit, place=place).decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise (place or SourcePlace(self.shown(name))).error(f"{self.shown(name)} is not UTF-8") from None

    def matching(self, pattern: str) -> list[str]:
        """The files whose names fit a pattern such as `plan/*.md`; only the last part of it may have stars."""
        directory, _, wanted = pattern.rpartition("/")
        if "*" not in wanted:
            return [pattern] if self.exists(pattern) and not self.is_directory(pattern) else []
        found = (
            f"{directory}/{name}" for name in self._names(directory) if fnmatch.fnmatchcase(name, wanted)
        )
        return [name for name in found if self.exists(name) and not self.is_directory(name)]

    def shown(self, name: str) -> str:
        """How a file is called to people: by its path in the project."""
        return name.removeprefix(f"{HOME}/")

    def _names(self, directory: str) -> list[str]:
        real = self._real(directory)
        if real is None or not real.is_dir():
            return []
        names = sorted(_listed(real))
        if len(names) > _MOST_NAMES:
            raise SourcePlace(self.shown(directory)).error(f"it has more than {_MOST_NAMES} files")
        return names

    def _real(self, name: str) -> Path | None:
        """Where a name really lies; nothing if it is not there. Raises `WorkspaceInvalid` for a way out."""
        plain = posixpath.normpath(name)
        if plain != self._mount and not plain.startswith(f"{self._mount}/"):
            return None
        try:
            real = self.root.joinpath(*plain.removeprefix(self._mount).strip("/").split("/")).resolve(
                strict=True
            )
        except (OSError, RuntimeError, ValueError):
            return None
        if not real.is_relative_to(self.root):
            raise SourcePlace(self.shown(plain)).error("it is a link that leads out of the workspace")
        return real


def _directory(given: Path) -> Path:
    try:
        real = given.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        real = None
    if real is None or not real.is_dir():
        raise WorkspaceInvalid(f"{given} is not a directory", hint="give the path of a CodeMachine workspace")
    return real


def _content(root: Path, parts: tuple[str, ...], limit: int) -> bytes:
    """Step by step without following links, since a name may become one after it was looked at."""
    held = os.open(root, _READ | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, _READ | os.O_DIRECTORY, dir_fd=held)
            os.close(held)
            held = deeper
        file = os.open(parts[-1] if parts else ".", _READ | os.O_NONBLOCK, dir_fd=held)
    finally:
        os.close(held)
    with open(file, "rb") as opened:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is not a file", str(root))
        return opened.read(limit + 1)


def _listed(directory: Path) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number > _MOST_NAMES:
                return
            yield entry.name


HOME = "/workspace"


def _normalise(path: str) -> str:
    if not path:
        return "."
    # Two slashes in front mean something of their own to POSIX, and nothing to Node.
    return posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


def _join(*parts: str) -> str:
    return _normalise("/".join(part for part in parts if part))


def _resolve(*parts: str) -> str:
    return _normalise(posixpath.join(HOME, *parts))


def _dirname(path: str) -> str:
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _basename(path: str, ending: str = "") -> str:
    name = posixpath.basename(path.rstrip("/"))
    return name if name == ending else name.removesuffix(ending)


def _extname(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path.rstrip("/")))[1]


def _relative(start: str, to: str) -> str:
    found = posixpath.relpath(_resolve(to), _resolve(start))
    return "" if found == "." else found


FUNCTIONS: Mapping[str, Callable[..., str]] = {
    "path.join": _join,
    "path.resolve": _resolve,
    "path.normalize": _normalise,
    "path.dirname": _dirname,
    "path.basename": _basename,
    "path.extname": _extname,
    "path.relative": _relative,
    "url.fileURLToPath": lambda address: address.removeprefix("file://"),
    "process.cwd": lambda: HOME,
}
CONSTANTS: Mapping[str, str] = {"path.sep": "/", "path.delimiter": ":"}
