"""Reading the file of a definition."""

from __future__ import annotations

from pathlib import Path

from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.fields import ToolError, Unreadable
from ratchet.tools.yaml_file import loaded_yaml, read_text


def read_tool_file(path: Path, *, within: Path | None = None) -> Tool:
    """The tool that a file describes; its id is the file's name, if it names none. Raises `ToolError`.

    The file must lie `within` a folder, also after following links; without one, where it seems to lie.
    """
    try:
        data = loaded_yaml(read_text(path, within or path.parent))
        if not isinstance(data, dict):
            raise Unreadable("it is not a table of keys")
    except Unreadable as error:
        raise ToolError([str(error)], file=str(path)) from error
    return read_tool(data, folder=path.parent.resolve(), id=path.stem, file=str(path))
