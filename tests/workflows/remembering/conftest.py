"""A real memory, opened as often as a process would open it."""

from __future__ import annotations

from tests.memory.conftest import (  # noqa: F401 - fixtures
    embedder,
    memory,
    open_again,
    path,
    qdrant_url,
)
