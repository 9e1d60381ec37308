"""Versions are never deleted; old ones are only worth less."""

from __future__ import annotations

import pytest

from ratchet.ledger import Ledger
from ratchet.ledger.tools import get_tool
from ratchet.workflows.evolution.standing import list_standings
from tests.workflows.evolution.lab import NAME, put_calls, put_other_version, put_tool
from tests.workflows.evolution.variants import SLOW

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def put_versions(ledger: Ledger, count: int) -> None:
    """Each better than the one before, but for the last."""
    with ledger.write() as tx:
        tool, _ = put_tool(tx)
        for number in range(count):
            put_calls(tx, tool, score=number / 20 if number < count - 1 else 0.0)
            if number < count - 1:
                put_other_version(tx, f"{SLOW}# {number}\n")
                tool = get_tool(tx, NAME)


def test_ten_versions_are_all_worth_going_back_to(ledger: Ledger) -> None:
    put_versions(ledger, 10)
    with ledger.read() as tx:
        found = list_standings(tx, get_tool(tx, NAME))
    assert [each.retired for each in found] == [False] * 10
    assert [each.stats.runs for each in found] == [3] * 10


def test_of_more_than_ten_the_best_three_and_the_newest_are(ledger: Ledger) -> None:
    put_versions(ledger, 12)
    with ledger.read() as tx:
        found = list_standings(tx, get_tool(tx, NAME))
    assert [each.version.version for each in found if not each.retired] == [
        "1.0.11",
        "1.0.10",
        "1.0.9",
        "1.0.8",
    ]
    assert found[0].current
    assert len(found) == 12
