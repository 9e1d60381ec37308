"""Homes for hosts: on SQLite, unless a test asks for both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ratchet.runtime import open_ledger, open_runtime
from tests.agents.host.homes import QUICK, Home
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load

MakeHome = Callable[..., Home]


@pytest.fixture
def make_home(tmp_path: Path, url: str) -> Iterator[MakeHome]:
    """Opens the home of this test with settings of its own; also a second time."""
    with ExitStack() as stack:

        def make(**settings: object) -> Home:
            loaded = load(
                tmp_path, url, **{**QUICK, **{f"agents.{key}": each for key, each in settings.items()}}
            )
            ledger = stack.enter_context(open_ledger(loaded))
            runtime = open_runtime(loaded, ledger, make_kinds())
            return Home(runtime, loaded)

        yield make


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home()
