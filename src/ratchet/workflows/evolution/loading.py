"""A tool from its rows in the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.ledger.tools import ToolRow, VersionRow
from ratchet.tools.definition import Tool, read_tool


def tool_of(tool: ToolRow, version: VersionRow) -> Tool:
    """The definition of a version. Its folder is that of the file it came from, if it came from one."""
    folder = Path(tool.source).parent if Path(tool.source).is_absolute() else None
    return replace(read_tool(version.definition, folder=None, id=tool.name, stored=True), folder=folder)
