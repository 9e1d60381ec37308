"""Evals and recorded calls: what the user has on record of an agent decides about its next version."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.checks.evals import EvalCase, check_expect, expected_of, hash_of
from ratchet.agents.checks.replay import Replay, ReplayedCall, names, worth_replaying
from ratchet.agents.checks.version import Used
from ratchet.agents.contract import Role
from ratchet.agents.servers import Called
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import Misuse, Outcome
from ratchet.ledger.evals import RecordedCall
from tests.agents.checks.conftest import Check, sections
from tests.agents.specimens import STATE, write_agent

ADA = {"name": "Ada"}


def case(expect: dict[str, Any], number: int = 1, tool: str = "greet") -> EvalCase:
    return EvalCase(number, Role.RUNNER, tool, ADA if tool == "greet" else {}, expect)


def test_a_version_that_answers_an_eval_otherwise_is_refused_whatever_its_own_tests_say(
    check: Check, agent: Path
) -> None:
    (agent / "tests.py").unlink()
    (agent / "canary.json").unlink()
    good, bad = case({"equals": "hello, Ada"}), case({"contains": "Good day"}, 2)
    checked = check(agent, used=Used((good, case({"equals": 1}, 3, "count"), bad)))
    verdict = checked.judged.verdict
    assert verdict.outcome is Outcome.FAILED
    found = sections(checked)["evals"]
    assert verdict.reason == (
        """evals: eval 2: greet({"name": "Ada"}): it does not contain 'Good day'; it is 'hello, Ada'"""
    )
    assert [each["passed"] for each in found["results"]] == [True, True, False]
    assert found["hash"] == hash_of((good, case({"equals": 1}, 3, "count"), bad))


@pytest.mark.parametrize(
    ("expect", "right"),
    [
        ({}, True),
        ({"fails": True}, False),
        ({"equals": {"sum": 3, "parts": [1, 2]}}, True),
        ({"equals": {"sum": 3}}, False),
        ({"has": {"sum": 3}}, True),
        ({"has": {"sum": 4}}, False),
        ({"has": {"other": None}}, False),
        ({"contains": "sum"}, True),
        ({"lacks": "sum"}, False),
        ({"lacks": "difference"}, True),
        ({"within_ms": 10}, True),
        ({"within_ms": 9}, False),
    ],
)
def test_an_answer_has_the_properties_that_an_eval_wants(expect: dict[str, Any], right: bool) -> None:
    value = {"sum": 3, "parts": [1, 2]}
    answer = Called(json.dumps(value), (), value, failed=False)
    assert (case(dict(check_expect(expect))).unmet(answer, 10.0) is None) is right


@pytest.mark.parametrize(
    "expect", [[], {"equal": 1}, {"contains": 1}, {"has": []}, {"fails": 1}, {"within_ms": True}]
)
def test_what_no_answer_could_be_is_refused(expect: Any) -> None:
    with pytest.raises(Misuse):
        check_expect(expect)


def test_an_eval_of_a_call_wants_the_answer_that_it_had() -> None:
    assert expected_of({"failed": False, "text": "3", "structured": {"result": 3}}) == {"equals": 3}
    assert expected_of({"failed": False, "text": "{}", "structured": {"a": 1}}) == {"equals": {"a": 1}}
    assert expected_of({"failed": True, "text": "no such name"}) == {
        "fails": True,
        "contains": "no such name",
    }


CALL = RecordedCall(1, 1, "c", "runner", "greet", ADA, {}, "ok", 3, True, 0)


def test_the_newest_calls_are_made_again_once_each_in_their_order() -> None:
    found = [
        dataclasses.replace(CALL, id=9, arguments={"name": "cut"}, is_whole=False),
        dataclasses.replace(CALL, id=8, tool="count", arguments={}),
        dataclasses.replace(CALL, id=7),
        dataclasses.replace(CALL, id=6, tool="crash", outcome="error"),
        dataclasses.replace(CALL, id=5, tool="count", arguments={}),
        dataclasses.replace(CALL, id=4, tool="old"),
    ]
    assert [each.id for each in worth_replaying(found, 2)] == [7, 8]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("greet is too stiff", True),
        ("`Greet` should shout", True),
        ("be greeted", False),
        ("set language first", True),
    ],
)
def test_a_feedback_names_the_tools_that_it_is_about(message: str, named: bool) -> None:
    assert (names(message, "greet") or names(message, "set_language")) is named


def test_a_feedback_without_a_tool_is_about_all_but_asks_for_no_errors(tmp_path: Path) -> None:
    good, bad = {"failed": False, "text": "3"}, {"failed": True, "text": "no"}

    def asked(message: str, old: dict[str, Any], new: dict[str, Any], by_person: bool = True) -> bool:
        replay = Replay(
            tmp_path, tmp_path, {}, (), message, by_person, ["greet", "count"], tmp_path, Agents(), "greeter"
        )
        return replay._asked("greet", old, new)

    assert asked("be kinder", good, {**good, "text": "4"})
    assert not asked("be kinder", good, bad)
    assert asked("be kinder", bad, good)
    assert not asked("count from one", good, {**good, "text": "4"})
    assert asked("greet less", good, bad)
    # Strangers excuse nothing by saying nothing of it.
    assert not asked("one star", good, {**good, "text": "4"}, by_person=False)
    assert asked("greet less", good, {**good, "text": "4"}, by_person=False)


def replayed(*tools: str) -> tuple[ReplayedCall, ...]:
    return tuple(
        ReplayedCall(number, Role.RUNNER, tool, ADA if tool != "count" else {})
        for number, tool in enumerate(tools)
    )


@pytest.mark.soak
def test_recorded_calls_that_are_answered_otherwise_are_findings_unless_they_were_asked_for(
    check: Check, tmp_path: Path
) -> None:
    base = write_agent(tmp_path / "base", tools=("greet", "count", "shout"))
    agent = write_agent(tmp_path / "new", tools=("greet", "count", "shout"), greeting="ahoy")
    for directory in (base, agent):
        (directory / "tests.py").unlink()
    used = Used(calls=replayed("greet", "shout", "count"), message="greet people as sailors do")
    checked = check(agent, base=base, state=STATE, used=used)
    assert checked.judged.verdict.outcome is Outcome.FAILED
    assert checked.judged.verdict.reason == (
        """replay: shout({"name": "Ada"}) answered 'HELLO, ADA', and now 'AHOY, ADA'"""
    )
    found = sections(checked)["replay"]
    assert [(each["call"][:5], each["asked"]) for each in found["differences"]] == [
        ("greet", True),
        ("shout", False),
    ]
    both = dataclasses.replace(used, message="greet and shout as sailors do")
    assert check(agent, base=base, state=STATE, used=both).judged.verdict.outcome is Outcome.PASSED


@pytest.mark.soak
def test_answers_that_the_old_version_does_not_repeat_are_not_compared(check: Check, tmp_path: Path) -> None:
    base, agent = write_agent(tmp_path / "base"), write_agent(tmp_path / "new")
    for directory in (base, agent):
        (directory / "tests.py").unlink()
        (directory / "words.py").write_text(
            "import os\n\ndef greeting_for(name):\n    return f'{os.urandom(8).hex()} {name}'\n"
        )
    checked = check(agent, base=base, state=STATE, used=Used(calls=replayed("greet")))
    assert checked.judged.verdict.outcome is Outcome.PASSED, checked.judged.verdict.reason
    assert sections(checked)["replay"]["unstable"] == ['greet({"name": "Ada"})']
