"""Tools from their rows in the ledger."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.tools import CalledRow, VersionRow, versions_by_id
from ratchet.tools.definition import Tool, read_tool


class StoredTools:
    """Definitions never change, so each is read once. Any thread may use it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read: dict[tuple[int, str], Tool] = {}

    def of(self, rows: Sequence[CalledRow], tx: Transaction | None = None) -> Mapping[int, Tool]:
        """The tools of these rows, by the numbers of their versions; read in `tx`, if the caller has one open."""
        missing = [row.version_id for row in rows if (row.version_id, row.source) not in self._read]
        found: Mapping[int, VersionRow] = {}
        if missing:
            with self._ledger.read() if tx is None else contextlib.nullcontext(tx) as opened:
                found = versions_by_id(opened, missing)
        return {
            row.version_id: self._read.get((row.version_id, row.source))
            or self.read(found[row.version_id], row.source)
            for row in rows
        }

    def read(self, version: VersionRow, source: str) -> Tool:
        """The tool of a version; its folder is that of the file from which its tool comes."""
        tool = self._read.get((version.id, source))
        if tool is None:
            tool = read_tool(version.definition, folder=None, stored=True)
            if Path(source).is_absolute():
                tool = dataclasses.replace(tool, folder=Path(source).parent)
            self._read[version.id, source] = tool
        return tool
