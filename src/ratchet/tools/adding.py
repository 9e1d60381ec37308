"""Putting a definition into the home, with the files that it names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from ratchet.kernel import Conflict
from ratchet.tools.body_reading import inside
from ratchet.tools.definition import Tool
from ratchet.tools.fields import ToolError, Unreadable
from ratchet.tools.files import read_tool_file
from ratchet.tools.yaml_file import read_bytes

_MOST_BYTES = 16 * 1024 * 1024


def install(tool: Tool | Path, folder: Path, *, taken: Mapping[str, str], replace: bool) -> str:
    """Write the definition into `folder` and return its id. Raises `Conflict` for an id that is `taken`.

    Every file is whole from the moment it has its name, and the definition comes last.
    """
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
            raise Unreadable(f"{name} is a file beside the definition, which comes without a folder")
        return read_bytes(inside(name, tool.folder), tool.folder, most=_MOST_BYTES)
    except Unreadable as error:
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
