"""Where the ledger is, found as the settings find it, but without reading all of them: that takes too long here."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HOME = ".ratchet"


@dataclass(frozen=True, slots=True)
class Place:
    """A home, the address of its ledger, and its ratchet.toml as it is."""

    home: Path
    database_url: str
    tables: Mapping[str, Any]

    @property
    def path(self) -> Path | None:
        """The file of a SQLite ledger; a relative path starts at the home."""
        scheme, _, rest = self.database_url.partition("://")
        return self.home / rest.removeprefix("/").partition("?")[0] if scheme == "sqlite" else None


def place_of(flags: Mapping[str, object]) -> Place:
    """The place that the flags, the environment and the directory lead to, whether there is anything or not."""
    here = Path.cwd()
    home = (
        here / Path(str(flags.get("home") or os.environ.get("RATCHET_HOME") or _nearest(here))).expanduser()
    )
    tables = _tables(home / "ratchet.toml")
    url = flags.get("database_url") or os.environ.get("RATCHET_DATABASE_URL") or tables.get("database_url")
    return Place(home, str(url or "sqlite:///ledger.db"), tables)


def _nearest(here: Path) -> Path:
    found = (directory / _HOME for directory in (here, *here.parents) if (directory / _HOME).is_dir())
    return next(found, here / _HOME)


def _tables(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, ValueError):
        return {}
