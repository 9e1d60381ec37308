"""Everything of the runtime's tests, and a small task."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.research.hill import write_hill
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
def hill(tmp_path: Path) -> Path:
    return write_hill(tmp_path / "hill")
