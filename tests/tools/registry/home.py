"""A home of Ratchet whose tools a test writes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from ratchet.config import Settings, load_settings
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import since
from ratchet.ledger.tools import VersionRow, get_tool, list_versions
from ratchet.tools.registry import Toolbox, open_toolbox


@dataclass
class Home:
    path: Path
    ledger: Ledger
    stack: contextlib.ExitStack

    def settings(self, **flags: object) -> Settings:
        given = {"home": str(self.path), "database_url": self.ledger.url, **flags}
        return load_settings(given, env={}).settings

    def open(self, *folders: Path, **flags: object) -> Toolbox:
        opened = open_toolbox(self.ledger, self.settings(**flags), self.path, folders=folders)
        self.stack.callback(opened.close)
        return opened

    def write(self, name: str, text: str, *, folder: Path | None = None) -> Path:
        """A definition, or a file beside one. One that is there is replaced, as an editor does it."""
        path = (folder or self.path / "tools") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(text, "utf-8")
        fresh.replace(path)
        return path

    def python(self, id: str, source: str = "def run(): return 1", more: str = "") -> Path:
        return self.write(f"{id}.yaml", f"type: python\npython:\n  source: |\n    {source}\n{more}")

    def events(self, type: str = "tool.*") -> list[tuple[str, str]]:
        """What happened to which tool, shipped ones left out."""
        with self.ledger.read() as tx:
            found = since(tx.connection, where=EventFilter(type=type), limit=1000)
        told = [(event.type, event.data["tool"]) for event in found if event.data is not None]
        return [(type, tool) for type, tool in told if tool.startswith("my_")]

    def versions(self, id: str, *, folder: str = "") -> list[VersionRow]:
        """Oldest first."""
        with self.ledger.read() as tx:
            return list_versions(tx, get_tool(tx, id, folder=folder).id)[::-1]
