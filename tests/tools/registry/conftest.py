"""A home with tools, on an empty ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.tools.registry import Toolbox
from tests.ledger.conftest import (  # noqa: F401 - fixtures
    MakeLedger,
    ledger,
    make_ledger,
    postgres_databases,
    sqlite_template,
)
from tests.tools.registry.home import Home

OpenHome = Callable[[Ledger], Home]


@pytest.fixture
def open_home(tmp_path: Path) -> Iterator[OpenHome]:
    with contextlib.ExitStack() as stack:
        yield lambda ledger: Home(tmp_path / "home", ledger, stack)


@pytest.fixture
def home(open_home: OpenHome, make_ledger: MakeLedger) -> Home:  # noqa: F811 - the fixture
    """On SQLite: what is looked at is the same on both."""
    return open_home(make_ledger("sqlite"))


@pytest.fixture
def toolbox(home: Home) -> Toolbox:
    return home.open()
