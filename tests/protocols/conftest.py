"""Everything of the runtime's tests, with agents and a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.runtime import Runtime
from tests.protocols.world import World, make_project, make_remote, write_agents
from tests.runtime.conftest import (  # noqa: F401 - fixtures
    fleet,
    ledger,
    nursery,
    runtime,
    url,
    worker,
)
from tests.runtime.worker_process import load


@pytest.fixture
def loaded(url: str, tmp_path: Path) -> Loaded:  # noqa: F811 - the agents must be there before the settings are read
    write_agents(tmp_path)
    return load(tmp_path, url)


@pytest.fixture
def world(tmp_path: Path, runtime: Runtime) -> World:  # noqa: F811
    remote = make_remote(tmp_path)
    return World(tmp_path, remote, runtime, make_project(runtime, remote))
