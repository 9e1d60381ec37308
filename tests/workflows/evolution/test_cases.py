"""Which inputs a variant is tried on."""

from __future__ import annotations

from typing import Any

from ratchet.ledger.tools import CallRow
from ratchet.tools.definition import Tool, read_tool
from ratchet.workflows.evolution.subject import CaseOrigin, ToolCase, held_out_cases, read_cases, write_cases
from tests.workflows.evolution.lab import definition


def tool() -> Tool:
    return read_tool(definition(), folder=None, id="add-up")


def call(n: int, **more: Any) -> CallRow:
    return CallRow(
        1, 1, **{"ok": True, "wall_ms": 1.0, "at": 0, "input": {"n": n}, "output": {"sum": n}, **more}
    )


def chosen(calls: list[CallRow], most: int = 10) -> set[int]:
    return {case.values["n"] for case in held_out_cases(tool(), calls, most, low=0.7)}


def test_different_inputs_that_were_answered_well_are_taken() -> None:
    good = [call(1), call(1), call(2, score=0.9)]
    bad = [call(3, ok=False), call(4, score=0.1), call(5, input=None), call(6, input=[6])]
    assert chosen([*good, *bad]) == {1, 2}


def test_an_example_is_known_to_the_author_and_not_held_out() -> None:
    assert chosen([call(10), call(11)]) == {11}


def test_the_choice_depends_on_the_inputs_alone() -> None:
    calls = [call(n) for n in range(100, 200)]
    assert chosen(calls, 7) == chosen(calls[::-1], 7)
    assert len(chosen(calls, 7)) == 7


def test_an_answer_counts_only_if_the_incumbent_always_gives_it() -> None:
    case = ToolCase(CaseOrigin.HELD_OUT, {"n": 1}, recorded=5)
    assert case.answered(5, 5).complaint(6) == "another answer than the right one"
    assert case.answered(5, 6).complaint(7) is None
    assert case.answered(6, 6).complaint(7) is None


def test_cases_are_the_same_for_a_run_that_begins_again() -> None:
    cases = held_out_cases(tool(), [call(1), call(2)], 10, low=0.7)
    assert read_cases(write_cases(cases)) == cases
