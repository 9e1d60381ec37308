"""The scripted model server as a fixture. A package that drives an engine imports it in its `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.modelserver import ModelServer


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """One server per test process; every test gives its script a name of its own."""
    with ModelServer() as server:
        yield server
