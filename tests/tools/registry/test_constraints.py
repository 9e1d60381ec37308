"""How often a tool may be called."""

from __future__ import annotations

import pytest

from ratchet.kernel import Conflict
from ratchet.tools.invocation import ToolRateLimited, check_constraints
from tests.tools.registry.home import Home

HOUR = 3_600_000


def test_the_call_that_is_too_many_is_refused_with_when_it_is_free_again(home: Home) -> None:
    home.python("my_tool", more="constraints: {max_calls_per_hour: 2}\n")
    found = home.open().get("my_tool")

    with home.ledger.write() as tx:
        for now in (1000, 2000):
            check_constraints(tx, found.tool_id, found.tool, now=now)
    with pytest.raises(ToolRateLimited, match="2 times an hour") as error, home.ledger.write() as tx:
        check_constraints(tx, found.tool_id, found.tool, now=3000)

    assert error.value.free_at == 1000 + HOUR
    assert isinstance(error.value, Conflict)
    with home.ledger.write() as tx:
        check_constraints(tx, found.tool_id, found.tool, now=1000 + HOUR)


def test_all_versions_of_a_tool_count_together(home: Home) -> None:
    limit = "constraints: {max_calls_per_hour: 1}\n"
    home.python("my_tool", more=limit)
    first = home.open().get("my_tool")
    home.python("my_tool", "def run(): return 2", limit)
    second = home.open().get("my_tool")
    with home.ledger.write() as tx:
        check_constraints(tx, first.tool_id, first.tool)

    with pytest.raises(ToolRateLimited), home.ledger.write() as tx:
        check_constraints(tx, second.tool_id, second.tool)


def test_a_tool_without_a_limit_is_never_refused(home: Home) -> None:
    found = home.open().get("word_count")

    with home.ledger.write() as tx:
        for _ in range(20):
            check_constraints(tx, found.tool_id, found.tool, now=1000)
