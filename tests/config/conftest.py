"""A directory with a home, and settings loaded there from real files and given variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings


@dataclass(frozen=True)
class Place:
    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / ".ratchet"

    @property
    def file(self) -> Path:
        return self.home / "ratchet.toml"

    def load(
        self,
        toml: str | None = None,
        env: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Loaded:
        if toml is not None:
            self.file.write_text(toml)
        return load_settings(flags, env=env or {}, cwd=self.directory)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.home.mkdir()
    return found
