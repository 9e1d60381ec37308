"""The ledger's own fixtures, a scripted model, and a laboratory with one run in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from tests.ledger.conftest import (  # noqa: F401 - fixtures
    ledger,
    make_ledger,
    postgres_databases,
    sqlite_template,
)
from tests.modelserver.fixtures import model_server
from tests.research.sessions.lab import Lab, open_lab

__all__ = ["model_server"]


@pytest.fixture
def lab(tmp_path: Path, make_ledger: object, request: pytest.FixtureRequest) -> Iterator[Lab]:  # noqa: F811
    """A run with a baseline on a small ledger; a test about the database asks for `both_labs`."""
    with open_lab(tmp_path, make_ledger("sqlite")) as made:  # type: ignore[operator]
        yield made


@pytest.fixture
def both_labs(tmp_path: Path, ledger: Ledger) -> Iterator[Lab]:  # noqa: F811
    """The same on each kind of database."""
    with open_lab(tmp_path, ledger) as made:
        yield made
