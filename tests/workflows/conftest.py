"""Everything of the runtime's tests."""

from __future__ import annotations

from tests.runtime.conftest import (  # noqa: F401 - fixtures
    fleet,
    ledger,
    loaded,
    nursery,
    runtime,
    url,
    worker,
)
from tests.runtime.machines import add_machine  # noqa: F401 - a fixture
