"""Evals and recorded calls: what the user has on record of an agent decides about its next version."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.checks.evals import EvalCase, check_expect, expected_of, hash_of
from ratchet.agents.checks.replay import AskedChanges, ReplayedCall, difference, worth_replaying
from ratchet.agents.checks.version import Used
from ratchet.agents.contract import Role
from ratchet.agents.servers import Called
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


def test_many_calls_of_one_tool_leave_room_for_those_of_others() -> None:
    flood = [dataclasses.replace(CALL, id=100 - each, arguments={"name": str(each)}) for each in range(50)]
    found = [
        *flood,
        dataclasses.replace(CALL, id=3, tool="count"),
        dataclasses.replace(CALL, id=2, tool="old"),
    ]
    assert [each.id for each in worth_replaying(found, 5)] == [2, 3, 98, 99, 100]


def test_only_the_tools_that_are_named_may_answer_otherwise() -> None:
    call = ReplayedCall(1, Role.RUNNER, "greet", ADA)
    for failed in (True, False):
        assert not AskedChanges().include(call, failed_before=failed)
        assert not AskedChanges(frozenset({"count"})).include(call, failed_before=failed)
        assert AskedChanges(frozenset({"greet", "count"})).include(call, failed_before=failed)


def test_the_fix_of_an_incident_may_change_its_call_and_what_failed() -> None:
    call, other = ReplayedCall(1, Role.RUNNER, "greet", ADA), ReplayedCall(2, Role.RUNNER, "count", ADA)
    asked = AskedChanges(call=("greet", {"name": "Bo"}))
    assert not asked.include(call, failed_before=False)
    assert asked.include(call, failed_before=True)
    assert AskedChanges(call=("greet", ADA)).include(call, failed_before=False)
    assert not asked.include(other, failed_before=True)


def test_a_difference_is_shown_where_the_answers_part() -> None:
    old, new = ({"failed": False, "text": "x" * 500 + end} for end in ("old", "new"))
    assert (
        difference("f()", old, new)
        == f"f() answered {'…' + 'x' * 40 + 'old'!r}, and now {'…' + 'x' * 40 + 'new'!r}"
    )
    assert difference("f()", old, old).endswith("which differs in what is not shown here")


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
    used = Used(calls=replayed("greet", "shout", "count"), asked=AskedChanges(frozenset({"greet"})))
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
    both = dataclasses.replace(used, asked=AskedChanges(frozenset({"greet", "shout"})))
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


@pytest.mark.soak
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        # What could never be compared may still not become an error.
        (
            "def greeting_for(name):\n    raise ValueError('no more')\n",
            r"replay: greet\(.* answered '[0-9a-f]{16} Ada', and now the error '.*no more'",
        ),
        ("import os\n\ndef greeting_for(name):\n    return f'{os.urandom(8).hex()}, {name}'\n", None),
    ],
)
def test_an_answer_that_the_old_version_does_not_repeat_may_not_become_an_error(
    check: Check, tmp_path: Path, words: str, reason: str | None
) -> None:
    base, agent = write_agent(tmp_path / "base"), write_agent(tmp_path / "new")
    for directory in (base, agent):
        (directory / "tests.py").unlink()
        (directory / "canary.json").write_text("[]")
    (base / "words.py").write_text(
        "import os\n\ndef greeting_for(name):\n    return f'{os.urandom(8).hex()} {name}'\n"
    )
    (agent / "words.py").write_text(words)
    verdict = check(agent, base=base, state=STATE, used=Used(calls=replayed("greet"))).judged.verdict
    assert verdict.outcome is (Outcome.PASSED if reason is None else Outcome.FAILED)
    assert reason is None or re.search(reason, str(verdict.reason))


@pytest.mark.soak
def test_answers_are_compared_to_their_end(check: Check, tmp_path: Path) -> None:
    base, agent = write_agent(tmp_path / "base"), write_agent(tmp_path / "new")
    for directory, end in ((base, "old"), (agent, "new")):
        (directory / "tests.py").unlink()
        (directory / "canary.json").write_text("[]")
        (directory / "words.py").write_text(f"def greeting_for(name):\n    return 'x' * 9000 + '{end}'\n")
    verdict = check(agent, base=base, state=STATE, used=Used(calls=replayed("greet"))).judged.verdict
    assert verdict.outcome is Outcome.FAILED
    assert "which differs in what is not shown here" in str(verdict.reason)


@pytest.mark.soak
def test_calls_that_the_old_version_cannot_be_asked_for_are_a_finding(check: Check, tmp_path: Path) -> None:
    base, agent = write_agent(tmp_path / "base"), write_agent(tmp_path / "new")
    for directory in (base, agent):
        (directory / "tests.py").unlink()
        (directory / "canary.json").unlink()
    (base / "runner.py").write_text("raise SystemExit('no disk')\n")
    verdict = check(agent, base=base, state=STATE, used=Used(calls=replayed("greet"))).judged.verdict
    assert verdict.outcome is Outcome.FAILED
    assert "the version before does not start, so 1 recorded calls are not compared" in str(verdict.reason)
