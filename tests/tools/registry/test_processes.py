"""Several processes with one ledger and one home."""

from __future__ import annotations

import contextlib

import pytest

from ratchet.ledger import Ledger
from tests.ledger.actors import acting, place_of
from tests.tools.registry.actors import open_and_call
from tests.tools.registry.conftest import OpenHome

PROCESSES, TOOLS, LIMIT = 3, 12, 4


@pytest.mark.soak
def test_they_record_each_tool_once_and_do_not_overshoot(open_home: OpenHome, ledger: Ledger) -> None:
    home = open_home(ledger)
    for number in range(TOOLS):
        home.python(f"my_{number}", more=f"constraints: {{max_calls_per_hour: {LIMIT}}}\n")

    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(acting(open_and_call, *place_of(ledger), home.path, LIMIT))
            for _ in range(PROCESSES)
        ]
        for _, pipe in others:
            assert pipe.recv() == "ready"
        for _, pipe in others:
            pipe.send("go")
        told = [pipe.recv() for _, pipe in others]

    assert len({listed for listed, _, _ in told}) == 1
    assert {version for _, version, _ in told} == {"1.0.0"}
    assert sum(started for _, _, started in told) == LIMIT
    assert sorted(home.events("tool.added")) == sorted(
        ("tool.added", f"my_{number}") for number in range(TOOLS)
    )
    assert all(len(home.versions(f"my_{number}")) == 1 for number in range(TOOLS))
