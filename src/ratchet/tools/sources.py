"""Where definitions of tools lie, how a changed one is recognised without reading it, and adding one."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ratchet.kernel import Conflict
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import ToolError, UnreadableDefinition, loaded_yaml, read_bytes, read_text
from ratchet.tools.functions import announced_functions, mark_of, tool_of
from ratchet.tools.reader import inside

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.tools.definition import Tool

FOLDER_NAME = "tools"
SUFFIXES = (".yaml", ".yml")
_SHIPPED_PLACE = "shipped:"
_MOST_FILES = 50_000
_DEEPEST = 10
# Packages that are installed for tools lie below the home's own folder, and may have such files, too.
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "environments"})
_MOST_BYTES = 16 * 1024 * 1024


def read_tool_file(path: Path, *, within: Path | None = None) -> Tool:
    """The tool that a file describes; its id is the file's name, if it names none. Raises `ToolError`.

    The file must lie `within` a folder, also after following links; without one, where it seems to lie.
    """
    try:
        data = loaded_yaml(read_text(path, within or path.parent))
        if not isinstance(data, dict):
            raise UnreadableDefinition("it is not a table of keys")
    except UnreadableDefinition as error:
        raise ToolError([str(error)], file=str(path)) from error
    return read_tool(data, folder=path.parent.resolve(), id=path.stem, file=str(path))


SHIPPED = Path(__file__).with_name("shipped")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is searched. `scope` is empty where its tools are known everywhere, else the folder itself."""

    path: Path
    scope: str = ""


class Offer(NamedTuple):
    """A definition that has not been read yet. A `built_in` one gives way to a file of the same id.

    `place` is the path of its file, unless it is built in. There may be many thousands, and most are only compared.
    """

    name: str
    scope: str
    place: str
    own_mark: str
    root: Path | None = None
    entry: EntryPoint | None = None
    problem: str | None = None
    built_in: bool = False

    def load(self) -> Tool:
        """Raises `ToolError`."""
        if self.entry is not None:
            return tool_of(self.entry)
        if self.problem is not None:
            raise ToolError([self.problem], file=self.place)
        return read_tool_file(self._path, within=self.root)

    def mark(self, files: Sequence[str]) -> str:
        """What changes when the definition does, or one of the files beside it that it was made of."""
        if not files or self.built_in:
            return self.own_mark
        marks = [f"{name}\t{_mark_at(self._path.parent / name)}" for name in files]
        return "\n".join([self.own_mark, *marks])

    def is_at(self, mark: str | None) -> bool:
        """Whether the mark that it had once is the one that it has."""
        own, *others = (mark or "").split("\n")
        return own == self.own_mark and mark == self.mark([each.partition("\t")[0] for each in others])

    @property
    def _path(self) -> Path:
        return SHIPPED / self.place.removeprefix(_SHIPPED_PLACE) if self.built_in else Path(self.place)


def roots_of(settings: Settings, home: Path, folders: Sequence[Path]) -> list[Root]:
    """The home's own, those of the settings, and `tools` beside what the caller names; each once."""
    set_folders = (settings.tools.folders or "") if settings.sets("tools") else ""
    everywhere = [home / FOLDER_NAME, *(Path(each) for each in set_folders.split(":") if each)]
    here = [each if each.name == FOLDER_NAME else each / FOLDER_NAME for each in folders]
    found: dict[Path, Root] = {}
    for path in everywhere:
        found.setdefault(path.resolve(), Root(path.resolve()))
    for path in here:
        found.setdefault(path.resolve(), Root(path.resolve(), scope=str(path.resolve())))
    return list(found.values())


def offers(roots: Sequence[Root], *, host: str) -> Iterator[Offer]:
    """Every definition that can be had here. `host` is part of marks where several machines share a ledger."""
    yield from _shipped()
    for entry in announced_functions():
        mark = mark_of(entry)
        yield Offer(entry.name, "", f"function:{entry.value}", mark, entry=entry, built_in=True)
    seen: set[str] = set()
    for root in roots:
        for offer in _files(root, host):
            if offer.place not in seen:
                seen.add(offer.place)
                yield offer


def _shipped() -> Iterator[Offer]:
    """One mark for all of them, of what is in the files: their times differ from one machine to the next."""
    files = sorted(path for path in SHIPPED.iterdir() if path.suffix in (".yaml", ".py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    mark = digest.hexdigest()
    for path in files:
        if path.suffix == ".yaml":
            yield Offer(path.stem, "", _SHIPPED_PLACE + path.name, mark, root=SHIPPED, built_in=True)


def _files(root: Root, host: str) -> Iterator[Offer]:
    for count, entry in enumerate(_entries(root.path, _DEEPEST), start=1):
        if count > _MOST_FILES:
            raise ToolError([f"{root.path} has more than {_MOST_FILES:,} definitions"])
        problem = None
        mark = f"{host}:{_mark(entry.stat(follow_symlinks=False))}"
        if entry.is_symlink():
            mark += f">{_mark_at(Path(entry.path))}"
            if not Path(entry.path).resolve().is_relative_to(root.path):
                problem = f"it is a link that leads out of {root.path}"
        stem = entry.name.rpartition(".")[0]
        yield Offer(stem, root.scope, entry.path, mark, root=root.path, problem=problem)


def _entries(folder: str | Path, depth: int) -> Iterator[os.DirEntry[str]]:
    """The YAML files below `folder` in the order of their names. Links to folders are not followed."""
    try:
        with os.scandir(folder) as found:
            listed = sorted(found, key=lambda each: each.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ToolError([f"the folder {folder} cannot be read: {error.strerror}"]) from error
    for entry in listed:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth and entry.name not in _LEFT_OUT:
                yield from _entries(entry.path, depth - 1)
        elif entry.name.endswith(SUFFIXES):
            yield entry


def _mark_at(path: Path) -> str:
    try:
        return _mark(path.stat())
    except OSError:
        return "-"


def _mark(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


def install(tool: Tool | Path, folder: Path, *, taken: Mapping[str, str], replace: bool) -> str:
    """Write the definition into `folder` and return its id. Raises `Conflict` for an id that is `taken`.

    Every file is whole from the moment it has its name, and the definition comes last.
    """
    # Loaded here: most commands that look for tools write none.
    import yaml

    made = tool if isinstance(tool, Tool) else read_tool_file(tool)
    target = _target(made, folder, taken.get(made.id), replace)
    body = made.executable
    target.parent.mkdir(parents=True, exist_ok=True)
    for name in body.files if body is not None else ():
        _write(target.parent / name, _script(made, name), executable=True)
    text = yaml.safe_dump(_as_written(made), sort_keys=False, allow_unicode=True, width=120)
    _write(target, text.encode())
    return made.id


def _target(tool: Tool, folder: Path, taken: str | None, replace: bool) -> Path:
    """Where the definition goes. A tool with scripts has a folder of its own."""
    fresh = folder / tool.id / f"{tool.id}.yaml" if _scripts(tool) else folder / f"{tool.id}.yaml"
    if taken is None or taken.startswith(("shipped:", "function:")):
        return fresh
    there = Path(taken)
    if there.is_absolute() and there.is_relative_to(folder.resolve()) and replace:
        return there
    new = tool.folder / f"{tool.id}.yaml" if tool.folder is not None else fresh
    raise Conflict(
        f"the id {tool.id} is taken: {taken} and {new} would both define it",
        hint="give it another id, or say that it is to replace the one in the home",
    )


def _scripts(tool: Tool) -> bool:
    return tool.executable is not None and bool(tool.executable.files)


def _script(tool: Tool, name: str) -> bytes:
    try:
        if tool.folder is None:
            raise UnreadableDefinition(
                f"{name} is a file beside the definition, which comes without a folder"
            )
        return read_bytes(inside(name, tool.folder), tool.folder, most=_MOST_BYTES)
    except UnreadableDefinition as error:
        raise ToolError([f"executable.args: {error}"]) from error


def _as_written(tool: Tool) -> dict[str, object]:
    """What a file says: the scripts are beside it, so that it need not say what is in them."""
    data = dict(tool.data)
    if tool.executable is not None:
        data["executable"] = {key: value for key, value in data["executable"].items() if key != "files"}
    return data


def _write(path: Path, content: bytes, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o755 if executable else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
