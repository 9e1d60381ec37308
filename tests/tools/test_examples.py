"""The examples of a tool are its tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ratchet.tools import invocation as examples
from tests.tools.bench import Bench, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

HALF = "def run(x):\n    return {'half': x / 2}"


def outcome(bench: Bench, given: list[dict[str, Any]]) -> examples.ToolTested:
    return asyncio.run(examples.test_tool(python_tool(HALF, examples=given), bench.occasion()))


def test_examples_that_come_true_pass(bench: Bench) -> None:
    done = outcome(
        bench, [{"input": {"x": 3}, "output": {"half": 1.5}}, {"input": {"x": 0.6}, "output": {"half": 0.3}}]
    )
    assert done.passed
    assert [each.got for each in done.results] == [{"half": 1.5}, {"half": 0.3}]


def test_an_example_that_does_not_come_true_says_where(bench: Bench) -> None:
    done = outcome(
        bench, [{"input": {"x": 3}, "output": {"half": 2}}, {"input": {"x": 4}, "output": {"half": 2}}]
    )
    assert not done.passed
    first, second = done.results
    assert (first.passed, first.why) == (False, "$.half is 1.5, not 2")
    assert (first.got, first.expected) == ({"half": 1.5}, {"half": 2})
    assert second.passed


def test_a_call_that_fails_is_told_and_the_others_are_tried(bench: Bench) -> None:
    done = outcome(bench, [{"input": {"x": "word"}, "output": 1}, {"input": {"x": 2}, "output": {"half": 1}}])
    assert "TypeError" in (done.results[0].why or "")
    assert [each.passed for each in done.results] == [False, True]


def test_an_example_without_an_output_asks_only_that_the_call_works(bench: Bench) -> None:
    done = outcome(bench, [{"input": {"x": 2}}])
    assert done.passed
    assert not done.results[0].checked


def test_a_tool_without_examples_has_not_passed(bench: Bench) -> None:
    assert not outcome(bench, []).passed


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (1, 1.0, True),
        (1, True, False),
        (10**12, 10**12 + 1, False),
        (10**400, 1.0, False),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_values_are_compared_exactly_but_for_rounding(got: Any, expected: Any, same: bool) -> None:
    assert (examples.difference(got, expected) is None) is same
