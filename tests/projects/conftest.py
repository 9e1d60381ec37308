"""Everything of the runtime's tests, and runtimes with settings of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.runtime import Runtime, open_ledger, open_runtime
from tests.projects.repositories import make_remote
from tests.runtime.conftest import (  # noqa: F401 - fixtures
    fleet,
    ledger,
    loaded,
    nursery,
    runtime,
    url,
    worker,
)
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load

MakeRuntime = Callable[..., Runtime]


@pytest.fixture
def make_runtime(tmp_path: Path, url: str) -> Iterator[MakeRuntime]:  # noqa: F811 - the fixture
    """Opens a runtime on the test's database, with settings such as `projects__auto_clone=False`."""
    with ExitStack() as opened:

        def make(**flags: object) -> Runtime:
            settings = load(tmp_path, url, **{key.replace("__", "."): value for key, value in flags.items()})
            of_test: Ledger = opened.enter_context(open_ledger(settings))
            return open_runtime(settings, of_test, make_kinds())

        yield make


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository called origin."""
    return make_remote(tmp_path / "remotes" / "origin")


sqlite_only = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
