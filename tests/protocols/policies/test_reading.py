"""Policies as people and CodeMachine write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.protocols.policies import Behavior, StepPolicy, policy_problems, read_policies, read_reasons

_LOOP = StepPolicy("check", Behavior.LOOP, "stepBack", 3, 2, frozenset({0, "lint"}))


@pytest.mark.parametrize(
    "written",
    [
        {
            "module_id": "check",
            "behavior": "loop",
            "action": "stepBack",
            "max_iterations": 3,
            "step_back": 2,
            "skip_steps": [0, "lint"],
        },
        {
            "id": "check",
            "behavior": {
                "type": "Loop",
                "action": "stepBack",
                "maxIterations": "3",
                "stepBack": 2.0,
                "skip": ["0", " lint "],
            },
        },
        {
            "moduleId": "check",
            "type": "loop",
            "action": "stepBack",
            "loopMaxIterations": 3,
            "loopSteps": 2,
            "loopSkip": [0, "lint"],
        },
    ],
)
def test_one_loop_can_be_written_in_several_ways(written: dict[str, Any]) -> None:
    assert read_policies(written) == [_LOOP]
    assert read_policies([written]) == [_LOOP]
    assert policy_problems(written) == []


@pytest.mark.parametrize("back", [0, -3, None])
def test_a_loop_goes_back_one_step_at_least(back: int | None) -> None:
    [policy] = read_policies({"behavior": "loop", "step_back": back})

    assert policy.step_back == 1
    assert policy.max_iterations is None


@pytest.mark.parametrize(
    ("condition", "reasons"),
    [
        ("QA_Failed", {"qa_failed"}),
        (["qa_failed", {"on": "Exec_Failed"}], {"qa_failed", "exec_failed"}),
        ({"reason": "a", "event": ["b"], "when": {"name": "C"}}, {"a", "b", "c"}),
        (None, set()),
        (7, set()),
    ],
)
def test_reasons_are_found_in_texts_lists_and_tables(condition: Any, reasons: set[str]) -> None:
    assert read_reasons(condition) == reasons


def test_a_policy_without_conditions_is_for_every_reason() -> None:
    [policy] = read_policies({"behavior": "loop", "condition": "", "conditions": []})

    assert policy.concerns("anything")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"module_id": "m"}, "not loop or trigger"),
        ({"behavior": "jump"}, "'jump'"),
        ({"behavior": "loop", "max_iterations": "many"}, "max_iterations is 'many'"),
        ({"behavior": "loop", "step_back": True}, "step_back is True"),
        ({"behavior": "loop", "skip_steps": [{}]}, "skip_steps is {}"),
        ({"behavior": "loop", "condition": {"unless": "x"}}, "names no reason"),
        (["loop"], "no object"),
    ],
)
def test_a_policy_that_cannot_be_understood_has_no_effect_and_is_told(written: Any, told: str) -> None:
    assert read_policies(written) == []
    [problem] = policy_problems(written)
    assert told in problem


def test_a_loop_that_skips_its_own_step_is_a_problem() -> None:
    written = {"module_id": "m", "behavior": "loop", "skip_steps": ["build"]}

    assert policy_problems(written, labels=frozenset({2, "build"})) != []
    assert policy_problems(written, labels=frozenset({2, "test"})) == []


def test_a_trigger_needs_an_agent() -> None:
    assert policy_problems({"behavior": "trigger"}) == ["trigger policy-1 names no agent"]
    assert policy_problems({"behavior": "trigger", "targetAgentId": "b"}) == []


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_keys = st.sampled_from(
    ["behavior", "type", "module_id", "stepBack", "maxIterations", "skip", "condition", "triggerAgentId"]
)


@given(st.dictionaries(_keys, _anything | st.sampled_from(["loop", "trigger"])) | _anything)
def test_whatever_is_written_is_read_or_told(written: Any) -> None:
    given = written if isinstance(written, list) else [written] if isinstance(written, dict) else []

    read, problems = read_policies(written), policy_problems(written)

    assert len(read) <= len(given)
    assert len(read) + len(problems) >= len(given)
    assert all(policy.step_back >= 1 for policy in read)
