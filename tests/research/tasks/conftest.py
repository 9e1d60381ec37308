"""A small task to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.research.tasks.folders import Folder, small


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return small(tmp_path / "small")
