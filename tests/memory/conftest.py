"""Memories of every kind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.config.workflow_settings import MemorySettings as Settings
from ratchet.config.workflow_settings import Qdrant
from ratchet.memory import Memory, WordLlama, open_memory
from tests.memory.qdrant_server import serving

OpenMemory = Callable[[], Memory]


@pytest.fixture(scope="session")
def embedder() -> WordLlama:
    return WordLlama()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def qdrant_url() -> Iterator[str]:
    """There is no Qdrant server in any package index: the client's own local mode answers real requests."""
    with serving() as url:
        yield url


@pytest.fixture(params=["sqlite", "qdrant"])
def open_again(request: pytest.FixtureRequest, path: Path, embedder: WordLlama) -> Iterator[OpenMemory]:
    """Opens one memory as often as it is called, as several processes would; each kind in its turn."""
    qdrant = Qdrant(url=request.getfixturevalue("qdrant_url")) if request.param == "qdrant" else Qdrant()
    settings = Settings(store=request.param, qdrant=qdrant)
    with contextlib.ExitStack() as stack:

        def opened() -> Memory:
            return stack.enter_context(contextlib.closing(open_memory(settings, path.parent, embedder)))

        yield opened


@pytest.fixture
def memory(open_again: OpenMemory) -> Memory:
    return open_again()
