"""When a tool is asked to be better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ratchet.config.workflow_settings import Evolution
from ratchet.ledger import Ledger
from ratchet.ledger.tools import CallRow, get_tool, pin_version
from ratchet.workflows.evolution import note_look, should_evolve
from ratchet.workflows.evolution.health import Targets, call_score, weigh
from tests.workflows.evolution.lab import NAME, put_calls, put_tool

MINUTE = 60_000


@pytest.mark.parametrize(
    ("scores", "yes", "why"),
    [
        ([], False, "0 calls"),
        ([0.1, 0.1, 0.1], False, "more than 3 are needed"),
        ([1.0, 0.8, 0.8, 0.8], True, "fell from 1.00 to 0.80"),
        # A fall by as much as is allowed is none.
        ([1.0, 0.85, 0.85, 0.85], False, "as good as before"),
        ([0.6, 0.69, 0.69, 0.69], True, "below 0.7"),
        ([0.7, 0.7, 0.7, 0.7], False, "as good as before"),
        ([0.2, 0.3, 0.9, 0.9, 0.9], False, "as good as before"),
        ([1.0, 1.0, 1.0, 1.0, 0.0], True, "fell"),
    ],
)
def test_a_tool_is_a_candidate_when_its_score_fell_or_is_low(
    scores: Sequence[float], yes: bool, why: str
) -> None:
    decision = weigh(scores, Evolution())
    assert decision.yes is yes
    assert why in decision.why


@pytest.mark.parametrize(
    ("call", "score"),
    [
        ({"ok": False}, 0.0),
        ({}, 1.0),
        ({"wall_ms": 400.0}, 0.5),
        ({"wall_ms": 250.0}, 0.8),
        ({"wall_ms": 10_000.0}, 0.5),
        ({"peak_bytes": 128 * 2**20}, 0.5),
        ({"wall_ms": 400.0, "peak_bytes": 128 * 2**20}, 0.25),
        ({"score": 0.3}, 0.3),
        ({"score": 7.0, "ok": False}, 1.0),
    ],
)
def test_a_call_is_worth_what_was_measured_or_what_somebody_said(call: dict[str, Any], score: float) -> None:
    targets = Targets.of({"target_ms": 200, "target_memory_mb": 64})
    row = CallRow(**{"tool_id": 1, "version_id": 1, "ok": True, "wall_ms": 100.0, "at": 0, **call})
    assert call_score(row, targets) == pytest.approx(score)
    assert call_score(CallRow(1, 1, True, 10_000.0, 0), Targets.of({})) == 1.0


def test_the_last_look_is_remembered_by_every_process(ledger: Ledger) -> None:
    settings = Evolution()
    with ledger.write() as tx:
        tool, _ = put_tool(tx)
        put_calls(tx, tool, inputs=range(7))
        put_calls(tx, tool, inputs=range(3), ok=False)
        other, _ = put_tool(tx, "other")
        decision = should_evolve(tx, tool, settings, tx.now)
        assert decision.yes, decision.why
        note_look(tx, tool, decision)
        note_look(tx, other, decision)
        looked = tx.now
    with ledger.read() as tx:
        soon = should_evolve(tx, tool, settings, looked + 59 * MINUTE)
        later = should_evolve(tx, tool, settings, looked + 61 * MINUTE)
    assert not soon.yes
    assert "59 minutes ago" in soon.why
    assert later.yes


def test_neither_simulated_calls_nor_a_pinned_tool_count(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tool, version = put_tool(tx)
        put_calls(tx, tool, inputs=range(10), ok=False, simulated=True)
        assert not should_evolve(tx, tool, Evolution(), tx.now).yes
        put_calls(tx, tool, inputs=range(10), ok=False)
        assert should_evolve(tx, tool, Evolution(), tx.now).yes
    with ledger.write() as tx:
        pin_version(tx, tool, version)
        decision = should_evolve(tx, get_tool(tx, NAME), Evolution(), tx.now)
    assert (decision.yes, "pinned" in decision.why) == (False, True)
