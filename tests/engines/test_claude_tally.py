"""Tokens are counted while a session runs, whatever an endpoint says about them."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.engines.claude.events import Tally, billed
from ratchet.kernel import Usage


def told(read: int, new: int, written: int, out: int) -> dict[str, int]:
    return {
        "cache_read_input_tokens": read,
        "input_tokens": new,
        "cache_creation_input_tokens": written,
        "output_tokens": out,
    }


def test_cached_and_newly_cached_input_is_input() -> None:
    tally = Tally()
    tally.begin(None, told(400, 500, 100, 1))
    assert tally.total == Usage(input_tokens=1000, cached_tokens=400, output_tokens=1)


def test_requests_add_up_and_each_counts_once() -> None:
    tally = Tally()
    for out in (10, 20):
        tally.begin(None, told(0, 100, 0, 1))
        tally.update(None, told(0, 100, 0, out))
    assert tally.total == Usage(input_tokens=200, output_tokens=30)


def test_helpers_that_work_at_the_same_time_are_told_apart() -> None:
    tally = Tally()
    tally.begin(None, told(0, 100, 0, 1))
    tally.begin("call-1", told(0, 50, 0, 1))
    tally.update(None, told(0, 0, 0, 30))
    tally.update("call-1", told(0, 0, 0, 5))
    assert tally.total == Usage(input_tokens=150, output_tokens=35)


@pytest.mark.parametrize("nonsense", [None, "many", [], {"input_tokens": -5}, {"output_tokens": "12"}])
def test_nonsense_counts_as_nothing(nonsense: Any) -> None:
    tally = Tally()
    tally.begin(None, nonsense)
    assert tally.total == Usage()


def test_money_is_in_whole_microdollars() -> None:
    models = [{"inputTokens": 10, "cacheReadInputTokens": 5, "outputTokens": 1, "costUSD": 9}] * 2
    assert billed(models, 0.0012000000000000001) == Usage(
        input_tokens=30, cached_tokens=10, output_tokens=2, cost_microusd=1200
    )


@pytest.mark.parametrize("cost", [None, 0, -1.0, float("nan"), float("inf")])
def test_a_cost_that_is_none_is_nothing(cost: float | None) -> None:
    assert billed([], cost).cost_microusd == 0
