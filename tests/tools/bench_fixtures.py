"""The bench as a fixture. One runtime serves all calls of a test process: most of them write nothing into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.runtime import Runtime, open_ledger, open_runtime
from tests.runtime.worker_process import load
from tests.tools.bench import Bench


@pytest.fixture(scope="session")
def shared_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    home = tmp_path_factory.mktemp("bench")
    loaded = load(home, f"sqlite:///{home}/ledger.db", **{"tools.variables": "WEATHER_KEY"})
    with open_ledger(loaded) as ledger:
        yield open_runtime(loaded, ledger)


@pytest.fixture
def bench(shared_runtime: Runtime, tmp_path: Path) -> Bench:
    return Bench(shared_runtime, tmp_path)
