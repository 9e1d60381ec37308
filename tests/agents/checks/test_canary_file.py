"""What canary.json may say, and which answers meet it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.agents.checks.canary import MAX_CALLS, CanaryCall, read_calls
from ratchet.agents.checks.files import NotPassed
from ratchet.agents.contract import Role
from ratchet.agents.servers import Called


def test_a_call_is_for_the_runner_unless_it_says_otherwise() -> None:
    calls = read_calls(
        b'[{"tool": "a", "arguments": {"n": 1}},'
        b' {"tool": "b", "arguments": {}, "server": "tuner", "expect": {"contains": "ok"}}]'
    )
    assert calls == (
        CanaryCall("a", {"n": 1}, {}, Role.RUNNER),
        CanaryCall("b", {}, {"contains": "ok"}, Role.TUNER),
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON"),
        ("{}", "is dict, not a list"),
        ("[1]", "call 1 of canary.json is int"),
        ('[{"arguments": {}}]', 'needs "tool"'),
        ('[{"tool": "", "arguments": {}}]', 'needs "tool"'),
        ('[{"tool": "a"}]', 'needs "arguments"'),
        ('[{"tool": "a", "arguments": {}, "args": {}}]', "has 'args'"),
        ('[{"tool": "a", "arguments": {}, "server": "architect"}]', '"server": "architect"'),
        ('[{"tool": "a", "arguments": {}, "server": ["runner"]}]', '"server": ["runner"]'),
        ('[{"tool": "a", "arguments": {}, "expect": "x"}]', 'not "x"'),
        ('[{"tool": "a", "arguments": {}, "expect": {"matches": "x"}}]', "may expect"),
        ('[{"tool": "a", "arguments": {}, "expect": {"contains": "x", "equals": 1}}]', "may expect"),
        ('[{"tool": "a", "arguments": {}, "expect": {"contains": 1}}]', "not a text"),
        ('[{"tool": "a", "tool": "b", "arguments": {}}]', "twice"),
        (json.dumps([{"tool": "a", "arguments": {}}] * (MAX_CALLS + 1)), f"at most {MAX_CALLS}"),
    ],
)
def test_anything_else_is_refused(content: str, reason: str) -> None:
    with pytest.raises(NotPassed) as raised:
        read_calls(content.encode())
    assert reason in str(raised.value)


def answered(text: str, structured: Any = None) -> Called:
    return Called(text, ({"type": "text", "text": text},), structured, failed=False)


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ({}, answered("anything")),
        ({"contains": "Ada"}, answered("hello, Ada")),
        ({"equals": "hello"}, answered("hello")),
        ({"equals": 3}, answered("3", {"result": 3})),
        ({"equals": {"result": 3}}, answered("3", {"result": 3})),
        ({"equals": {"a": [1, None]}}, answered('{"a": [1, null]}')),
        ({"equals": 1}, answered("1.0", {"result": 1.0})),
        ({"equals": True}, answered("true", {"result": True})),
    ],
)
def test_an_answer_meets_what_is_expected(expect: dict[str, Any], answer: Called) -> None:
    assert CanaryCall("a", {}, expect, Role.RUNNER).unmet(answer) is None


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ({"contains": "ada"}, answered("hello, Ada")),
        ({"equals": "hell"}, answered("hello")),
        ({"equals": 3}, answered("4", {"result": 4})),
        ({"equals": 3}, answered("3", {"result": 4})),
        ({"equals": True}, answered("1", {"result": 1})),
        ({"equals": [1]}, answered("", {"result": [True]})),
        ({"equals": [1]}, answered("", {"result": [1, 2]})),
        ({"equals": {"a": 1}}, answered("", {"a": 1, "b": 2})),
        ({"equals": None}, answered("hello")),
        ({"equals": 1}, answered("[" * 100_000)),
    ],
)
def test_another_answer_does_not(expect: dict[str, Any], answer: Called) -> None:
    assert CanaryCall("a", {}, expect, Role.RUNNER).unmet(answer) is not None
