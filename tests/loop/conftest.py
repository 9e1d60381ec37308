"""A repository to climb in, and everything of the runtime's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.workspaces import Repository
from tests.loop.flow import REF
from tests.runtime.conftest import (  # noqa: F401 - fixtures
    fleet,
    ledger,
    loaded,
    nursery,
    runtime,
    url,
    worker,
)
from tests.runtime.machines import add_machine  # noqa: F401 - a fixture


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository whose best commit holds the number 0."""
    path = tmp_path / "repo.git"
    made = Repository.create(path)
    first = made.commit_files({"number.txt": b"0\n"}, parent=None, message="Begin")
    made.advance(REF, first, expected=None)
    made.close()
    return path
