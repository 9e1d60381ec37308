"""Engines in a home of their own, a workspace to work in, and the scripted model behind them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratchet.config import load_settings
from ratchet.engines import Engine
from ratchet.engines.registry import EngineContext, open_engine
from tests.modelserver.fixtures import model_server

__all__ = ["model_server"]


@dataclass(frozen=True)
class Place:
    """A home, and what the environment of the process that opens an engine holds besides the PATH."""

    home: Path

    def surroundings(self, toml: str = "", environment: Mapping[str, str] | None = None) -> EngineContext:
        """What an engine is opened with; `toml` are the settings."""
        self.home.mkdir(exist_ok=True)
        (self.home / "ratchet.toml").write_text(toml)
        loaded = load_settings({"home": str(self.home)}, env={})
        return EngineContext(loaded.settings, self.home, {"PATH": os.environ["PATH"], **(environment or {})})

    def open(self, name: str, toml: str = "", environment: Mapping[str, str] | None = None) -> Engine:
        return open_engine(name, self.surroundings(toml, environment))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small repository that a session may change."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    (directory / "README.md").write_text("A project.\n")
    git = ["git", "-C", str(directory), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    return directory
