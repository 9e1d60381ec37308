"""Settings that suit small tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.config import Loaded
from tests.runtime.worker_process import load

QUICK = {"workflows.evolution.cases": 2, "workflows.evolution.tries": 9}


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:
    return load(tmp_path, url, **QUICK)
