"""The critical path through steps, and what rows of items and inner steps add up to."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.kernel import RunId, StepId, StepStatus
from ratchet.ledger import Step
from ratchet.workflows.profile import add_up, longest_way, top_step

DIAMOND = {"a": frozenset[str](), "b": frozenset("a"), "c": frozenset("a"), "d": frozenset("bc")}


@pytest.mark.parametrize(
    ("took", "way"),
    [
        ({"a": 1, "b": 5, "c": 2, "d": 1}, ["a", "b", "d"]),
        ({"a": 1, "b": 5, "c": 9, "d": 1}, ["a", "c", "d"]),
        # What never ran took nothing, and makes no way longer.
        ({"a": 1, "b": 5}, ["a", "b"]),
    ],
)
def test_the_longest_way_follows_what_took_longest(took: dict[str, float], way: list[str]) -> None:
    assert longest_way(DIAMOND, took) == way


def test_the_longest_way_is_not_the_one_with_the_longest_step() -> None:
    edges = {"long": frozenset[str](), "one": frozenset[str](), "two": frozenset({"one"})}
    assert longest_way(edges, {"long": 5, "one": 3, "two": 3}) == ["one", "two"]
    assert longest_way({}, {}) == []


def row(
    name: str, began: int, ended: int, *, status: StepStatus = StepStatus.COMPLETED, **result: Any
) -> Step:
    return Step(StepId(1), RunId(1), 0, name, status, None, {}, result, began, ended, ended)


def test_items_and_inner_steps_count_for_the_step_of_the_workflow() -> None:
    assert [top_step(each) for each in ("a", "a[3]", "a/b[1]/c")] == ["a", "a", "a"]
    metrics = {"wall_ms": 40.0, "cpu_ms": 30.0, "peak_bytes": 7, "cost_microusd": 2, "tokens": 5}
    found = add_up(
        [
            row("list[0]", 100, 140, metrics=metrics, tries=1),
            row("list[1]", 120, 170, metrics={**metrics, "peak_bytes": 9}, tries=2),
            row("list", 100, 171),
            row("alone", 200, 900, metrics=metrics, tries=1),
            row("kept", 200, 201, metrics=metrics, tries=1, cached=True),
            row("skipped", 0, 0, status=StepStatus.CANCELLED),
        ]
    )
    items = found["list"]
    assert (items.span_ms, items.calls, items.tries) == (71.0, 2, 3)
    assert (items.cpu_ms, items.peak_bytes, items.cost_microusd, items.tokens) == (60.0, 9, 4, 10)
    # One call took what its tool took, whenever its row was written.
    assert found["alone"].span_ms == 40.0
    assert (found["kept"].span_ms, found["kept"].cached) == (0.0, 1)
    assert "skipped" not in found
