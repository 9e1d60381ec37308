"""How the console shows what was paid."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.server.console.formats import cost


@pytest.mark.parametrize(
    ("used", "shown"),
    [
        (None, "unknown"),
        (0.0, "$0.00"),
        ({"cost_microusd": 2_000_000, "unpriced_tokens": 0}, "$2.00"),
        ({"cost_microusd": 0, "unpriced_tokens": 5}, "unknown"),
        ({"cost_microusd": 2_000_000, "unpriced_tokens": 5}, "over $2.00"),
        ({"cost_microusd": 0, "unpriced_tokens": 0}, "$0.00"),
    ],
)
def test_what_nobody_knows_is_unknown_and_never_nothing(used: Any, shown: str) -> None:
    assert cost(used) == shown
